//! Where does a measured number come from? The value of `of` in an experiment's file.
//!
//! The file holds one key with its value, `{ printed = "{} MB/s" }`, or only the word `"time"`. The names of the observer's
//! quantities are keys too, so a new row in [`vsteer_core::trigger::quantity::QUANTITIES`] is a measure at once.

use serde::de::{EnumAccess, Error, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use vsteer_core::counted::Event;
use vsteer_core::trigger::quantity::{QUANTITIES, Quantity};

/// Source of a measured number.
#[derive(Debug, Clone, PartialEq)]
pub enum Of {
    /// Duration of the command, s.
    Time,
    /// Number that the command printed at `{}` in this pattern; the last match counts. `*` matches any text.
    Printed(String),
    /// Idle power after each visit of a setting, W: the lowest value of the meter over `for_s` (120 s in the study).
    IdleWatts {
        /// A command that prints watts; or `rapl`, `hwmon`, `acpi`, `ipmi`.
        meter: String,
        /// How long to watch the meter, s.
        for_s: f64,
    },
    /// A quantity of the vCPUs of these VMs (name, id, or pattern with `*`): % of the run, or ms. In the file, the key
    /// is the quantity's name: `ready = "web*"`.
    Observed(&'static Quantity, String),
    /// Performance counter of the kernel in the vCPUs of VMs, summed, events per second.
    Counter {
        /// Event to count.
        event: Event,
        /// Name or id of the VMs, or a pattern with `*`.
        vm: String,
    },
}

impl Of {
    /// Quantity and VMs to observe; `None` if the measure does not need the observer.
    pub fn observed(&self) -> Option<(&'static Quantity, &str)> {
        let Of::Observed(quantity, vms) = self else { return None };
        Some((quantity, vms))
    }
}

/// Keys that are not quantities.
const OWN: [&str; 4] = ["time", "printed", "idle_watts", "counter"];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdleWatts {
    meter: String,
    #[serde(default = "two_minutes")]
    for_s: f64,
}

fn two_minutes() -> f64 {
    120.0
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counter {
    event: Event,
    vm: String,
}

impl Serialize for Of {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Of::Time => to.serialize_unit_variant("Of", 0, OWN[0]),
            Of::Printed(pattern) => to.serialize_newtype_variant("Of", 1, OWN[1], pattern),
            Of::IdleWatts { meter, for_s } => {
                let value = IdleWatts { meter: meter.clone(), for_s: *for_s };
                to.serialize_newtype_variant("Of", 2, OWN[2], &value)
            }
            Of::Counter { event, vm } => {
                to.serialize_newtype_variant("Of", 3, OWN[3], &Counter { event: *event, vm: vm.clone() })
            }
            Of::Observed(quantity, vms) => to.serialize_newtype_variant("Of", 4, quantity.name, vms),
        }
    }
}

impl<'de> Deserialize<'de> for Of {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Of, D::Error> {
        from.deserialize_enum("Of", &OWN, OfVisitor)
    }
}

struct OfVisitor;

impl<'de> Visitor<'de> for OfVisitor {
    type Value = Of;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"time\" or one measure, for example { printed = \"{} MB/s\" }")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, from: A) -> Result<Of, A::Error> {
        let (key, value) = from.variant::<String>()?;
        Ok(match key.as_str() {
            "time" => {
                value.unit_variant()?;
                Of::Time
            }
            "printed" => Of::Printed(value.newtype_variant()?),
            "idle_watts" => {
                let IdleWatts { meter, for_s } = value.newtype_variant()?;
                Of::IdleWatts { meter, for_s }
            }
            "counter" => {
                let Counter { event, vm } = value.newtype_variant()?;
                Of::Counter { event, vm }
            }
            name => match Quantity::named(name) {
                Some(quantity) => Of::Observed(quantity, value.newtype_variant()?),
                None => {
                    let known: Vec<&str> = OWN.into_iter().chain(QUANTITIES.iter().map(|q| q.name)).collect();
                    return Err(A::Error::custom(format!(
                        "{name:?} is not a measure: use one of {}",
                        known.join(", ")
                    )));
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_back_and_written_as_the_same() {
        let forms = [
            r#""time""#,
            r#"{"printed":"{} MB/s"}"#,
            r#"{"idle_watts":{"meter":"rapl","for_s":60.0}}"#,
            r#"{"counter":{"event":"cpu-migrations","vm":"web*"}}"#,
            r#"{"ready_p99":"web*"}"#,
            r#"{"run":"*"}"#,
        ];
        for form in forms {
            let of: Of = serde_json::from_str(form).unwrap_or_else(|e| panic!("{form}: {e}"));
            assert_eq!(serde_json::to_string(&of).unwrap(), form);
            #[derive(Deserialize)]
            struct Line {
                of: Of,
            }
            // An inline table of TOML is JSON with other signs between key and value.
            let line = toml::from_str::<Line>(&format!("of = {}", form.replace("\":", "\" = ")));
            let line = line.unwrap_or_else(|e| panic!("{form}: {e}"));
            assert_eq!(line.of, of, "{form}");
        }
        let short: Of = serde_json::from_str(r#"{"idle_watts":{"meter":"rapl"}}"#).unwrap();
        assert_eq!(short, Of::IdleWatts { meter: "rapl".into(), for_s: 120.0 });
    }

    #[test]
    fn what_is_not_a_measure_is_refused_by_name() {
        for (form, says) in [
            (r#"{"redy":"web*"}"#, "\"redy\" is not a measure: use one of time"),
            (r#""printed""#, ""),
            (r#"{"idle_watts":{"meter":"rapl","fors":1}}"#, "fors"),
            (r#"{"ready":"a","run":"b"}"#, ""),
        ] {
            let refused = serde_json::from_str::<Of>(form).unwrap_err().to_string();
            assert!(refused.contains(says), "{form}: {refused}");
        }
    }
}
