//! Is it an experiment that can be run, and that its log can be read of?
//!
//! What is wrong is named before anything is set. What a file may hold at all is [`super::description`]'s.

use super::description::{Experiment, Of};
use vsteer_core::counted;
use vsteer_core::{Fault, FaultKind};

impl Experiment {
    /// Is it one that can be run?
    ///
    /// # Errors
    /// `BadInput`, naming what is wrong.
    pub fn check(&self) -> Result<(), Fault> {
        self.check_form()?;
        let wrong = |of: String, why: &str| Fault::new(FaultKind::BadInput, of).because(why);
        if let Some(f) = self.factors.iter().find(|f| f.kernel && f.on.is_some()) {
            return Err(wrong(
                format!("factor {:?}", f.name),
                "its words are another machine's (`on`), and what is booted is this one",
            )
            .help(
                "run vsteer on that machine, or set its words and boot it by hand, an experiment for each",
            ));
        }
        for m in &self.measures {
            if let Of::IdleWatts { for_s, .. } = m.of
                && !(for_s > 0.0 && for_s <= 86_400.0)
            {
                return Err(wrong(format!("measure {:?}", m.name), "for_s is above 0 and a day at most"));
            }
        }
        Ok(())
    }

    /// Is it one that a log may be of? Those that were begun before [`Experiment::check`] refused them can still be read and reported.
    ///
    /// # Errors
    /// `BadInput`, naming what is wrong.
    pub fn check_form(&self) -> Result<(), Fault> {
        self.check_frame()?;
        self.check_factors()?;
        self.check_measures()?;
        self.laid().map(|_| ())
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Result<(), Fault> {
        Err(Fault::new(FaultKind::BadInput, format!("experiment {:?}", self.name)).because(why))
    }

    /// Checks everything except factors and measures.
    fn check_frame(&self) -> Result<(), Fault> {
        if self.name.is_empty() || self.name.contains(['/', '\n']) || self.name.starts_with('.') {
            return self.wrong("its name becomes a folder's: letters, digits, dashes");
        }
        if !(5..=10_000).contains(&self.runs_least)
            || self.runs_most < self.runs_least
            || self.runs_most > 10_000
        {
            return self.wrong(format!(
                "runs_least {} and runs_most {}: 5 at least, in this order",
                self.runs_least, self.runs_most
            ));
        }
        if !(1..=100).contains(&self.runs_per_visit) || self.warm_up > 100 {
            return self.wrong("runs_per_visit is 1 to 100, warm_up 0 to 100");
        }
        if self.margin_percent.is_some_and(|m| !(m > 0.0 && m < 100.0)) {
            return self.wrong("margin_percent is above 0 and below 100");
        }
        let times = self.timeout_s > 0.0
            && self.timeout_s <= 7.0 * 86_400.0
            && (0.0..=86_400.0).contains(&self.settle_s);
        if !times {
            return self.wrong("timeout_s is above 0 and a week at most, settle_s a day at most");
        }
        if self.workload.command.trim().is_empty() {
            return self.wrong("its workload has no command");
        }
        Ok(())
    }

    fn check_factors(&self) -> Result<(), Fault> {
        let mut names: Vec<&str> = self.factors.iter().map(|f| f.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|w| w[0] == w[1]) || names.iter().any(|n| n.is_empty()) {
            return self.wrong("every factor has a name of its own");
        }
        for f in &self.factors {
            let mut levels = f.levels.clone();
            levels.sort();
            levels.dedup();
            if levels.len() != f.levels.len() {
                return self.wrong(format!("factor {:?} has a level twice", f.name));
            }
            f.kept(self.connect.as_deref())?;
            if f.knob(self.boot.as_ref())?.is_none() {
                let place = format!("{{{}}}", f.name);
                let w = &self.workload;
                let used = [Some(&w.command), w.prepare.as_ref(), w.clean.as_ref()];
                if !used.into_iter().flatten().any(|c| c.contains(&place)) {
                    return self.wrong(format!(
                        "factor {:?} is neither set by anything nor in the workload as {place}",
                        f.name
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_measures(&self) -> Result<(), Fault> {
        for m in &self.measures {
            if let Of::Printed(pattern) = &m.of
                && pattern.matches("{}").count() != 1
            {
                return self
                    .wrong(format!("measure {:?}: its text has one {{}} where the number stands", m.name));
            }
        }
        for m in &self.measures {
            if let Of::Counter { event, vm } = &m.of {
                if vm.is_empty() {
                    return self.wrong(format!("measure {:?}: which VM's {}?", m.name, event.name()));
                }
                if !m.unit.is_empty() && m.unit != counted::UNIT {
                    return self.wrong(format!(
                        "measure {:?}: {} is per second ({})",
                        m.name,
                        event.name(),
                        counted::UNIT
                    ));
                }
            }
            if let Some((quantity, vms)) = m.of.observed() {
                if vms.is_empty() {
                    return self.wrong(format!("measure {:?}: which VM's {}?", m.name, quantity.name));
                }
                if !m.unit.is_empty() && m.unit != quantity.unit() {
                    return self.wrong(format!(
                        "measure {:?}: {} is in {}",
                        m.name,
                        quantity.name,
                        quantity.unit()
                    ));
                }
            }
        }
        if self.measures.first().is_some_and(|m| matches!(m.of, Of::IdleWatts { .. })) {
            return self.wrong("the first measure decides on the number of runs: not idle watts");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::SMALL;
    use super::*;

    #[test]
    fn every_quantity_is_a_measure() {
        for q in vsteer_core::quantity::QUANTITIES {
            let text = SMALL.replace(
                "[workload]",
                &format!("[[measure]]\nname = \"m\"\nof = {{ {} = \"web*\" }}\n[workload]", q.name),
            );
            let e: Experiment = toml::from_str(&text).unwrap();
            e.check().unwrap();
            let m = &e.measured()[0];
            assert_eq!((m.of.observed(), m.unit.as_str()), (Some((&q, "web*")), q.unit()));
        }
        let text = SMALL.replace(
            "[workload]",
            "[[measure]]\nname = \"m\"\nunit = \"s\"\nof = { ready = \"web*\" }\n[workload]",
        );
        let e: Experiment = toml::from_str(&text).unwrap();
        assert!(e.check().unwrap_err().to_string().contains("in %"));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let good: Experiment = toml::from_str(SMALL).unwrap();
        good.check().unwrap();
        assert_eq!(good.with_levels("make -j{jobs}", &[1]), "make -j2");
        assert_eq!(good.measured()[0].of, Of::Time);
        for (from, to) in [
            ("make -j{jobs}", "make"),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"1\"]"),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"2\"]\nset = \"x\""),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"2\"]\nkernel = true"),
            ("levels = [\"1\", \"2\"]", "levels = [\"1\", \"2\"]\ntuned = true\nfile = \"/x\""),
            ("name = \"j\"", "name = \"../j\""),
            ("design = \"pair\"", "design = \"pair\"\nruns_least = 3"),
            ("design = \"pair\"", "design = \"pair\"\nmargin_percent = 0.0"),
        ] {
            let bad: Experiment = toml::from_str(&SMALL.replace(from, to)).unwrap();
            assert_eq!(bad.check().unwrap_err().kind, FaultKind::BadInput, "{to}");
        }
        let idle = |for_s: &str| {
            let measures = format!(
                "[[measure]]\nname = \"t\"\nof = \"time\"\n[[measure]]\nname = \"w\"\nof = {{ idle_watts = {{ meter = \"rapl\", for_s = {for_s} }} }}\n[workload]"
            );
            toml::from_str::<Experiment>(&SMALL.replace("[workload]", &measures)).unwrap().check()
        };
        idle("120.0").unwrap();
        for for_s in ["0.0", "-1.0", "nan", "inf", "86401.0"] {
            assert!(idle(for_s).unwrap_err().to_string().contains("for_s"), "{for_s}");
        }
        assert!(
            toml::from_str::<Experiment>(&SMALL.replace("[workload]", "margin = 3\n[workload]")).is_err()
        );
    }

    #[test]
    fn words_of_another_machines_kernel_are_refused_and_logs_of_them_read() {
        let kernel = |on: &str| {
            let factor = format!("levels = [\"x=1\", \"x=2\"]\nkernel = true\n{on}\n[boot]\nset = \"true\"");
            let e: Experiment = toml::from_str(&SMALL.replace("levels = [\"1\", \"2\"]", &factor)).unwrap();
            e
        };
        kernel("").check().unwrap();
        let there = kernel("on = \"root@guest\"");
        let fault = there.check().unwrap_err();
        assert!(
            fault.kind == FaultKind::BadInput && fault.to_string().contains("another machine's"),
            "{fault}"
        );
        assert!(fault.help.is_some());
        there.check_form().unwrap();
    }
}
