//! Plans and what-if questions: `/api/v1/plan`, `/api/v1/plan?set=VM:weight=200`.
//!
//! Nothing is changed: the answer has the plan as `vsteer apply` reads it from a file, its steps in words, and the command that
//! applies that file on the host.

use super::refused::refused;
use super::source::{Answers, not_yet, with_head};
use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};
use vsteer_core::plan::Plan;
use vsteer_core::plan::set::Setting;
use vsteer_core::setting::Step;
use vsteer_core::setting::argv::shell_word;
use vsteer_core::{Fault, FaultKind};

pub(super) const PATH: &str = "/plan";

pub(super) async fn plan(State(answers): State<Answers>, RawQuery(query): RawQuery) -> Response {
    let source = &answers.source;
    let Some(seen) = source.seen.borrow().clone() else { return not_yet() };
    let settings = match settings(query.as_deref().unwrap_or_default()) {
        Ok(settings) => settings,
        Err(fault) => return refused(&fault),
    };
    if seen.minute.is_none() && settings.is_empty() {
        let note = "a plan needs the samples of 15 seconds";
        return with_head(PATH, &seen, json!({ "plan": null, "steps": [], "note": note, "command": null }));
    }
    match source.forecasts.plan(&seen, settings).await {
        Err(fault) => refused(&fault),
        Ok(planned) => {
            let plan = &*planned.plan;
            let body = json!({
                "plan": plan,
                "steps": plan.steps.iter().map(|step| in_words(plan, step)).collect::<Vec<_>>(),
                "note": planned.note,
                "command": command(plan, source.connect.as_deref()),
            });
            with_head(PATH, &seen, body)
        }
    }
}

fn in_words(plan: &Plan, step: &Step) -> Value {
    json!({ "vm": step.vm, "vm_name": plan.called(step), "text": step.change.to_string(), "reason": step.reason })
}

/// The command that applies the plan, if it is in a file named after its id. `None`: there is nothing to apply.
fn command(plan: &Plan, connect: Option<&str>) -> Option<String> {
    let connect = connect.map(|uri| format!(" --connect {}", shell_word(uri))).unwrap_or_default();
    (!plan.steps.is_empty()).then(|| format!("vsteer apply plan-{}.json{connect} --try 60s", plan.id))
}

/// The settings of a query: `set=` any number of times, and nothing else.
fn settings(query: &str) -> Result<Vec<Setting>, Fault> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let one = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| match name.as_ref() {
        "set" => value.parse::<Setting>().map_err(|why| {
            Fault::new(FaultKind::Usage, format!("set={value:?} is not a setting")).because(why)
        }),
        other => Err(Fault::new(FaultKind::Usage, format!("{other:?} is not a parameter of this path"))
            .help("known: set")),
    };
    pairs.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_a_whole_or_refused() {
        assert_eq!(settings("").unwrap(), []);
        let two = settings("set=web:weight=200&set=a%26b:pin.0=1").unwrap();
        assert_eq!(two, ["web:weight=200", "a&b:pin.0=1"].map(|text| text.parse::<Setting>().unwrap()));
        for wrong in ["set=web", "st=web:weight=1", "set=web:weight=x", "set"] {
            assert_eq!(settings(wrong).unwrap_err().kind, FaultKind::Usage, "{wrong}");
        }
    }
}
