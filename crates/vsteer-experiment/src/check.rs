//! Is an experiment's description valid, so that vsteer can run it and read its log?
//!
//! The check reports an error before vsteer changes any setting. [`super::description`] defines the file's form.

use super::description::{Experiment, Of};
use vsteer_core::counted;
use vsteer_core::{Fault, FaultKind};

impl Experiment {
    /// Checks that vsteer can run the experiment.
    ///
    /// # Errors
    /// `BadInput`, with the reason.
    pub fn check(&self) -> Result<(), Fault> {
        self.check_form()?;
        let wrong = |of: String, why: &str| Fault::new(FaultKind::BadInput, of).because(why);
        if let Some(f) = self.factors.iter().find(|f| f.kernel && f.on.is_some()) {
            return Err(wrong(
                format!("factor {:?} is not valid", f.name),
                "it sets kernel words on another machine (`on`), but vsteer reboots only this machine",
            )
            .help(
                "run vsteer on that machine, or change its words by hand and make one experiment per setting",
            ));
        }
        for m in &self.measures {
            if let Of::IdleWatts { for_s, .. } = m.of
                && !(for_s > 0.0 && for_s <= 86_400.0)
            {
                return Err(wrong(
                    format!("measure {:?} is not valid", m.name),
                    "for_s is not a time greater than 0 s and at most 86400 s",
                ));
            }
        }
        Ok(())
    }

    /// Checks that a log of this experiment can be read. Weaker than [`Experiment::check`], so that older logs stay
    /// readable.
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
        Err(Fault::new(FaultKind::BadInput, format!("experiment {:?} is not valid", self.name)).because(why))
    }

    /// Checks everything except factors and measures.
    fn check_frame(&self) -> Result<(), Fault> {
        if self.name.is_empty() || self.name.contains(['/', '\n']) || self.name.starts_with('.') {
            return self.wrong("the name is not a valid folder name; use letters, digits and dashes");
        }
        if !(5..=10_000).contains(&self.runs_least)
            || self.runs_most < self.runs_least
            || self.runs_most > 10_000
        {
            return self.wrong(format!(
                "runs_least is {} and runs_most is {}; expected 5 <= runs_least <= runs_most <= 10000",
                self.runs_least, self.runs_most
            ));
        }
        if !(1..=100).contains(&self.runs_per_visit) {
            return self.wrong(format!("runs_per_visit is {}; expected 1 to 100", self.runs_per_visit));
        }
        if self.warm_up > 100 {
            return self.wrong(format!("warm_up is {}; expected 0 to 100", self.warm_up));
        }
        if let Some(margin) = self.margin_percent.filter(|m| !(*m > 0.0 && *m < 100.0)) {
            return self.wrong(format!("margin_percent is {margin}; expected a value between 0 and 100"));
        }
        if !(self.timeout_s > 0.0 && self.timeout_s <= 7.0 * 86_400.0) {
            return self.wrong(format!(
                "timeout_s is {} s; expected more than 0 and at most 604800",
                self.timeout_s
            ));
        }
        if !(0.0..=86_400.0).contains(&self.settle_s) {
            return self.wrong(format!("settle_s is {} s; expected 0 to 86400", self.settle_s));
        }
        Ok(())
    }

    fn check_factors(&self) -> Result<(), Fault> {
        let mut names: Vec<&str> = self.factors.iter().map(|f| f.name.as_str()).collect();
        names.sort_unstable();
        if names.iter().any(|n| n.is_empty()) {
            return self.wrong("a factor has no name");
        }
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            return self.wrong(format!("two factors have the name {:?}", twice[0]));
        }
        for f in &self.factors {
            let mut levels = f.levels.clone();
            levels.sort();
            levels.dedup();
            if levels.len() != f.levels.len() {
                return self.wrong(format!("factor {:?} has the same level twice", f.name));
            }
            f.kept(self.connect.as_deref())?;
            if f.knob(self.boot.as_ref())?.is_none() {
                let place = format!("{{{}}}", f.name);
                let w = &self.workload;
                let used = [Some(&w.command), w.prepare.as_ref(), w.clean.as_ref()];
                if !used.into_iter().flatten().any(|c| c.mentions(&f.name)) {
                    return self.wrong(format!(
                        "factor {:?} has no effect: it has no file, commands, tuned or kernel, and {place} \
                            is not in the workload",
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
                return self.wrong(format!(
                    "measure {:?}: the pattern must contain {{}} exactly once, at the place of the number",
                    m.name
                ));
            }
        }
        for m in &self.measures {
            if let Of::Counter { event, vm } = &m.of {
                if vm.is_empty() {
                    return self.wrong(format!(
                        "measure {:?}: {} needs the name of a VM",
                        m.name,
                        event.name()
                    ));
                }
                if !m.unit.is_empty() && m.unit != counted::UNIT {
                    return self.wrong(format!(
                        "measure {:?}: the unit of {} must be {}",
                        m.name,
                        event.name(),
                        counted::UNIT
                    ));
                }
            }
            if let Some((quantity, vms)) = m.of.observed() {
                if vms.is_empty() {
                    return self
                        .wrong(format!("measure {:?}: {} needs the name of a VM", m.name, quantity.name));
                }
                if !m.unit.is_empty() && m.unit != quantity.unit() {
                    return self.wrong(format!(
                        "measure {:?}: the unit of {} must be {}",
                        m.name,
                        quantity.name,
                        quantity.unit()
                    ));
                }
            }
        }
        if self.measures.first().is_some_and(|m| matches!(m.of, Of::IdleWatts { .. })) {
            return self.wrong("the first measure decides the number of runs, so it cannot be idle watts");
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
        for q in vsteer_core::trigger::quantity::QUANTITIES {
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
        assert!(e.check().unwrap_err().to_string().contains("must be %"));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let good: Experiment = toml::from_str(SMALL).unwrap();
        good.check().unwrap();
        assert_eq!(good.with_levels(&good.workload.command, &[1]).words(), ["make", "-j2"]);
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
                "[[measure]]\nname = \"t\"\nof = \"time\"\n[[measure]]\nname = \"w\"\nof = {{ idle_watts = \
                    {{ meter = \"rapl\", for_s = {for_s} }} }}\n[workload]"
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
            fault.kind == FaultKind::BadInput && fault.to_string().contains("on another machine"),
            "{fault}"
        );
        assert!(fault.help.is_some());
        there.check_form().unwrap();
    }
}
