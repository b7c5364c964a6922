//! Reads the scrapes of one folder or target, one after the other, and keeps only their differences.

use super::{Kept, Target};
use vsteer_core::plural::counted;
use vsteer_core::{Fault, FaultKind};
use vsteer_record::prometheus::{Histogram, Scrape};

/// How many scrapes that were passed over are named.
const TOLD: usize = 5;

/// Scrapes that are being read.
pub(super) struct Reading<'a> {
    /// Where they are from: a folder, or a server's target.
    from: String,
    of: &'a Histogram,
    all: Vec<Kept>,
    /// The last scrape that was kept.
    last: Option<Scrape>,
    /// Has a scrape had the histogram?
    is_there: bool,
    /// Why the last scrape without it has it not.
    lacks: Option<Fault>,
    /// The first scrapes that were passed over, with the reasons, and how many there were.
    passed: (usize, Vec<(String, String)>),
    /// The first scrape with lines that were passed over, and what they are.
    odd: Option<(String, String)>,
    assumes_seconds: bool,
    /// Most bounds of buckets that were left out.
    left_out: usize,
}

impl<'a> Reading<'a> {
    pub(super) fn new(from: String, of: &'a Histogram) -> Reading<'a> {
        Reading {
            from,
            of,
            all: Vec::new(),
            last: None,
            is_there: false,
            lacks: None,
            passed: (0, Vec::new()),
            odd: None,
            assumes_seconds: false,
            left_out: 0,
        }
    }

    /// Takes the next scrape, or why it cannot be read. `place`: where it is, for notes.
    pub(super) fn scrape(&mut self, at_ns: u64, place: String, scrape: Result<Scrape, String>) {
        let now = match scrape.and_then(|now| self.fits(now)) {
            Ok(now) => now,
            Err(why) => return self.pass_over(place, why),
        };
        // Nothing stands before the first scrape that would show that it was cut. The second one does.
        if let ([_], Some(why)) =
            (self.all.as_slice(), self.last.as_ref().and_then(|last| last.cut_beside(&now)))
            && let Some(first) = self.all.pop()
        {
            self.pass_over(first.place, why.to_owned());
            self.last = None;
        }
        let has = now.checked();
        self.is_there |= has.is_ok();
        let since = self.last.as_ref().filter(|_| has.is_ok()).map(|last| now.since(last));
        if let Some(Ok(since)) = &since {
            self.left_out = self.left_out.max(since.left_out);
        }
        self.lacks = has.err().or(self.lacks.take());
        self.assumes_seconds |= now.assumes_seconds();
        if let (None, Some(odd)) = (&self.odd, now.passed_over()) {
            self.odd = Some((place.clone(), odd));
        }
        self.all.push(Kept { at_ns, place, since });
        self.last = Some(now);
    }

    /// The scrape, or why it does not fit those before.
    fn fits(&self, now: Scrape) -> Result<Scrape, String> {
        if let Some(why) = self.last.as_ref().and_then(|last| now.cut_beside(last)) {
            return Err(why.to_owned());
        }
        if self.is_there && now.checked().is_err() {
            return Err(format!("it does not hold the histogram {}, as earlier scrapes do", self.of));
        }
        Ok(now)
    }

    /// The scrapes, with notes about what was passed over and what was assumed.
    ///
    /// # Errors
    /// `NothingThere` for fewer than two scrapes, or if none has the histogram.
    pub(super) fn done(self, whose: &str, note: &mut dyn FnMut(&str)) -> Result<Target, Fault> {
        if self.all.len() < 2 {
            return Err(self.too_few(whose));
        }
        self.tell(note);
        // Before a server is asked for the first time it may have none.
        match self.lacks.filter(|_| !self.is_there) {
            Some(f) => Err(Fault { what: format!("{}: {}", self.from, f.what), ..f }),
            None => Ok(Target { all: self.all }),
        }
    }

    fn pass_over(&mut self, place: String, why: String) {
        self.passed.0 += 1;
        if self.passed.1.len() < TOLD {
            self.passed.1.push((place, why));
        }
    }

    /// Notes what was passed over and what was assumed.
    fn tell(&self, note: &mut dyn FnMut(&str)) {
        let (passed, first) = &self.passed;
        for (place, why) in first {
            note(&format!("{place}: passed over this scrape: {why}"));
        }
        if *passed > first.len() {
            let more = counted(passed - first.len(), "more scrape");
            note(&format!("{}: passed over {more} for such reasons", self.from));
        }
        if let Some((place, odd)) = &self.odd {
            note(&format!("{place}: {odd}"));
        }
        if self.left_out > 0 {
            let bounds = counted(self.left_out, "bound");
            note(&format!(
                "{}: the histogram {} has other buckets in some series or scrapes; vsteer leaves out up to {bounds} that not all have",
                self.from, self.of
            ));
        }
        if self.assumes_seconds {
            note(&format!(
                "{}: vsteer assumes that times of the histogram {} are seconds; neither its name nor the scrapes tell the unit",
                self.from, self.of
            ));
        }
    }

    /// The fault that fewer than two scrapes are left.
    fn too_few(&self, whose: &str) -> Fault {
        let readable = if self.passed.0 > 0 { "readable " } else { "" };
        let scrapes = counted(self.all.len(), "scrape");
        let (n, noun) = scrapes.split_once(' ').unwrap_or((&scrapes, ""));
        let what = format!("{whose}: {} holds {n} {readable}{noun}", self.from);
        Fault::new(FaultKind::NothingThere, what)
            .because(match self.passed.1.first() {
                Some((place, why)) => format!("{place}: {why}"),
                None => "requests of an interval are the difference of two scrapes".to_owned(),
            })
            .help("save a scrape at least at each end of an interval")
    }
}
