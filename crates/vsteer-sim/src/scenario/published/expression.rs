//! Computes a published number from runs: sums, differences, products and quotients of measures.
//!
//! `before.web.ready * 12` uses a measure of VM `web` (or the mean of several VMs made by one `count`) in run
//! `before`. `before.busy` is the utilisation of the pCPUs. Shares and parts are in percent and times in ms,
//! as in printed tables.

use crate::scenario::Case;
use crate::scenario::outcome::{MEASURES, Run, Unit};
use serde::Deserialize;
use std::str::FromStr;

/// An expression over runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Expression(Vec<Step>);

/// In the order of a stack machine.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Number(f64),
    Busy { run: String },
    Measure { run: String, vm: String, measure: usize },
    Plus,
    Minus,
    Times,
    By,
}

impl TryFrom<String> for Expression {
    type Error = String;

    fn try_from(text: String) -> Result<Expression, String> {
        text.parse()
    }
}

impl FromStr for Expression {
    type Err = String;

    fn from_str(text: &str) -> Result<Expression, String> {
        let mut reader = Reader { left: text, steps: Vec::new() };
        reader.sum().map_err(|why| format!("{text:?}: {why}"))?;
        if !reader.left.trim_start().is_empty() {
            return Err(format!("{text:?}: unexpected {:?}", reader.left.trim_start()));
        }
        Ok(Expression(reader.steps))
    }
}

/// A recursive-descent parser that appends steps for the stack machine.
struct Reader<'a> {
    left: &'a str,
    steps: Vec<Step>,
}

impl<'a> Reader<'a> {
    fn sign(&mut self, signs: &[char]) -> Option<char> {
        let left = self.left.trim_start();
        let sign = left.chars().next().filter(|c| signs.contains(c))?;
        self.left = &left[sign.len_utf8()..];
        Some(sign)
    }

    fn sum(&mut self) -> Result<(), String> {
        self.product()?;
        while let Some(sign) = self.sign(&['+', '-']) {
            self.product()?;
            self.steps.push(if sign == '+' { Step::Plus } else { Step::Minus });
        }
        Ok(())
    }

    fn product(&mut self) -> Result<(), String> {
        self.atom()?;
        while let Some(sign) = self.sign(&['*', '/']) {
            self.atom()?;
            self.steps.push(if sign == '*' { Step::Times } else { Step::By });
        }
        Ok(())
    }

    fn atom(&mut self) -> Result<(), String> {
        if self.sign(&['(']).is_some() {
            self.sum()?;
            return self.sign(&[')']).map(|_| ()).ok_or_else(|| "missing `)`".into());
        }
        let left = self.left.trim_start();
        let end = left.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(left.len());
        let word: &'a str = &left[..end];
        self.left = &left[end..];
        let step = match word.split('.').collect::<Vec<_>>()[..] {
            _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
                Step::Number(word.parse().map_err(|_| format!("{word:?} is not a number"))?)
            }
            [run, "busy"] => Step::Busy { run: run.into() },
            [run, vm, name] => {
                let measure = MEASURES.iter().position(|m| m.name == name);
                let measure = measure.ok_or_else(|| format!("{name:?} is not the name of a measure"))?;
                Step::Measure { run: run.into(), vm: vm.into(), measure }
            }
            _ => return Err(format!("{word:?} is not a number, RUN.VM.MEASURE or RUN.busy")),
        };
        self.steps.push(step);
        Ok(())
    }
}

fn scaled(unit: Unit, value: f64) -> f64 {
    match unit {
        Unit::Share | Unit::Part => 100.0 * value,
        Unit::Time => 1e-6 * value,
        Unit::Rate => value,
    }
}

impl Expression {
    /// The names of the runs in the expression.
    pub fn runs(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|step| match step {
            Step::Busy { run } | Step::Measure { run, .. } => Some(run.as_str()),
            _ => None,
        })
    }

    /// The value for one seed; `of` finds a run of that seed by its name. `None` if a VM has no such measure.
    ///
    /// # Errors
    /// If a run or VM does not exist.
    pub fn value<'a>(&self, of: impl Fn(&str) -> Option<(&'a Case, &'a Run)>) -> Result<Option<f64>, String> {
        let mut stack: Vec<f64> = Vec::new();
        let find = |run: &str| of(run).ok_or_else(|| format!("run {run:?} does not exist"));
        for step in &self.0 {
            let mut two = || {
                let second = stack.pop().expect("the reader leaves two");
                (stack.pop().expect("the reader leaves two"), second)
            };
            let value = match step {
                Step::Number(x) => *x,
                Step::Busy { run } => 100.0 * find(run)?.1.busy,
                Step::Measure { run, vm, measure } => {
                    let (case, done) = find(run)?;
                    let Some(mean) = mean_of(case, done, vm, *measure)? else { return Ok(None) };
                    scaled(MEASURES[*measure].unit, mean)
                }
                Step::Plus => {
                    let (a, b) = two();
                    a + b
                }
                Step::Minus => {
                    let (a, b) = two();
                    a - b
                }
                Step::Times => {
                    let (a, b) = two();
                    a * b
                }
                Step::By => {
                    let (a, b) = two();
                    a / b
                }
            };
            stack.push(value);
        }
        Ok(Some(stack[0]))
    }
}

/// The mean over the VMs called `vm`, or made from it by a count.
fn mean_of(case: &Case, run: &Run, vm: &str, measure: usize) -> Result<Option<f64>, String> {
    let is = |name: &str| {
        let number = name.strip_prefix(vm).and_then(|rest| rest.strip_prefix('-'));
        name == vm || number.is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let named: Vec<usize> = (0..case.setup.vms.len()).filter(|i| is(&case.setup.vms[*i].name)).collect();
    if named.is_empty() {
        return Err(format!("the run has no VM {vm:?}"));
    }
    let values: Vec<f64> = named.iter().filter_map(|i| run.vms[*i][measure]).collect();
    Ok(vsteer_core::stats::mean(&values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Option<f64>, String> {
        text.parse::<Expression>()?.value(|_| None)
    }

    #[test]
    fn arithmetic_as_everybody_knows_it() {
        for (text, is) in [
            ("2", 2.0),
            ("2 + 3 * 4", 14.0),
            ("(2 + 3) * 4", 20.0),
            ("10 - 3 - 2", 5.0),
            ("100 * (5 / 4 - 1)", 25.0),
        ] {
            assert_eq!(value(text), Ok(Some(is)), "{text}");
        }
        for bad in ["", "2 +", "(2", "2)", "a", "a.b", "a.b.wieght", "1.2.3", "a.b.c.d", "2 2"] {
            assert!(bad.parse::<Expression>().is_err(), "{bad}");
        }
        let e: Expression = "before.web.ready * 12 - after.busy".parse().unwrap();
        assert_eq!(e.runs().collect::<Vec<_>>(), ["before", "after"]);
        assert!(e.value(|_| None).unwrap_err().contains("\"before\""));
    }
}
