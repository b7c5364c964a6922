//! What shall this VM do? The description of a workload, as text and as a value.
//!
//! `KIND` or `KIND,key=value,...`: short enough for a kernel command line. A mistake is an error, never a
//! default: a lab that runs another load than was asked for measures nothing. Left out: different workloads
//! on different vCPUs of one VM.

use crate::requests::{self, Schedule, Service, Spacing};

/// What each vCPU does.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    Idle,
    /// Work without pause.
    Burn,
    /// Sleeps to absolute expiries.
    Periodic {
        /// From one expiry to the next, ns.
        period_ns: u64,
        /// Work after each expiry, units.
        work_units: u64,
        /// Where expiries lie between two multiples of the period, by the host's CLOCK_MONOTONIC, ns (in VMs of the emulated
        /// host); where they happen to, if not given.
        phase_ns: Option<u64>,
    },
    /// Open-loop Poisson arrivals with exponential demand.
    Server {
        /// Mean arrivals per second and vCPU.
        rate_hz: f64,
        /// Mean demand of a request, work units.
        mean_units: f64,
        /// Decides every gap and demand.
        seed: u64,
    },
    /// Open-loop arrivals at rates that change with time; idle once they are over.
    Scheduled(Schedule),
    /// Burns and sleeps in turn.
    Burst {
        /// Burning, ns.
        on_ns: u64,
        /// Sleeping, ns.
        off_ns: u64,
    },
    /// Sleeps, from now on and not to an absolute expiry, and then works: the test application of VIT.
    Sleeper {
        /// Each sleep, ns.
        sleep_ns: u64,
        /// Work after it, units.
        work_units: u64,
        /// Work that comes with each sleep and waits until nothing else is to be done, units: another thread, of lower priority.
        background_units: u64,
        /// Tell the host by a hypercall when each sleep ends.
        call: bool,
    },
    /// Tells the host of a timer as often as it can, working one unit in between.
    Flood {
        /// When it says that the timer ends, ns.
        timer_ns: u64,
    },
    /// Builds the tree of C sources that is carried along, from nothing, again and again: work of a host that starts processes
    /// all the time. For processes alone, and in the emulated host.
    Build {
        /// How many compilers at a time.
        jobs: u64,
    },
    /// Two threads that hand a byte to and fro: each unit is two switches from one to the other. For processes alone.
    Switch,
    /// Two threads that compute without end, one of them nicer than the other: units are that one's. For processes alone.
    Niced {
        /// Its nice value.
        nice: i32,
    },
    /// A media player plays a film. In a VM with Linux alone.
    Play {
        /// Beside a thread that computes whenever the player does not.
        background: bool,
        /// The host is told when the player's timers end, by a library that is loaded before its own.
        call: bool,
    },
    /// A program of the initramfs runs, which says by itself what it has finished. In a VM with Linux alone.
    Program {
        /// Its name in /bin, and its words.
        words: Vec<String>,
    },
    /// A burner that wakes often.
    Waker {
        /// Burning between two sleeps, ns.
        every_ns: u64,
        /// Each sleep, ns.
        sleep_ns: u64,
    },
}

/// A workload and when it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What to do.
    pub workload: Workload,
    /// Idle until then, ns of CLOCK_MONOTONIC (that is, after boot).
    pub start_ns: u64,
}

impl Plan {
    /// Reads a workload with the parameter that all have, `start_ms`.
    ///
    /// # Errors
    /// A sentence naming the word that is wrong.
    pub fn parse(text: &str) -> Result<Plan, String> {
        let (mut start_ns, mut rest) = (0, Vec::new());
        for word in text.trim().split(',') {
            match word.strip_prefix("start_ms=") {
                Some(ms) => {
                    start_ns = ms.parse::<u32>().map_err(|_| format!("`{word}`: not a number of ms"))?
                }
                None => rest.push(word),
            }
        }
        let workload = Workload::parse(&rest.join(","))?;
        Ok(Plan { workload, start_ns: u64::from(start_ns) * 1_000_000 })
    }
}

impl Workload {
    /// The word that reports carry.
    pub fn kind(&self) -> &'static str {
        match self {
            Workload::Idle => "idle",
            Workload::Burn => "burn",
            Workload::Periodic { .. } => "periodic",
            Workload::Server { .. } | Workload::Scheduled(_) => "server",
            Workload::Burst { .. } => "burst",
            Workload::Sleeper { .. } => "sleeper",
            Workload::Flood { .. } => "flood",
            Workload::Build { .. } => "build",
            Workload::Switch => "switch",
            Workload::Niced { .. } => "niced",
            Workload::Play { .. } => "play",
            Workload::Program { .. } => "program",
            Workload::Waker { .. } => "waker",
        }
    }

    /// Only for processes: a VM of the emulated host has no operating system.
    pub fn needs_process(&self) -> bool {
        matches!(self, Workload::Build { .. } | Workload::Switch | Workload::Niced { .. })
    }

    /// Only for VMs with Linux, which is then there to start a program.
    pub fn needs_linux(&self) -> bool {
        matches!(self, Workload::Play { .. } | Workload::Program { .. })
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// A sentence naming the word that is wrong.
    pub fn parse(text: &str) -> Result<Workload, String> {
        let mut words = text.trim().split(',');
        let kind = words.next().unwrap_or_default();
        let mut given = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("`{word}` is not key=value"))?;
            given.push((key, value));
        }
        // A server that has a schedule is another workload with other parameters.
        if let Some(rates) = (kind == "server").then(|| take_word(&mut given, "rates")).flatten() {
            let schedule = scheduled(rates, &mut given)?;
            return match given.first() {
                Some((key, _)) => Err(format!("a server with `rates` has no parameter `{key}`")),
                None => Ok(Workload::Scheduled(schedule)),
            };
        }
        if kind == "program" {
            let run = take_word(&mut given, "run").ok_or("`program` lacks run=NAME/WORD/WORD")?;
            let words = run.split('/').map(str::to_owned).collect();
            return match given.first() {
                Some((key, _)) => Err(format!("`program` has no parameter `{key}`")),
                None => Ok(Workload::Program { words }),
            };
        }
        let numbers = given.iter().map(|(key, value)| Ok((*key, number(key, value)?)));
        let mut given = numbers.collect::<Result<Vec<_>, String>>()?;
        let mut take = |key: &str, default: f64| match given.iter().position(|(k, _)| *k == key) {
            Some(i) => given.swap_remove(i).1,
            None => default,
        };
        let workload = of_numbers(kind, &mut take).ok_or_else(|| {
            format!(
                "`{kind}` is not a workload (idle, burn, periodic, server, burst, sleeper, flood, waker, build, switch, niced, play, program)"
            )
        })?;
        match given.first() {
            Some((key, _)) => Err(format!("`{kind}` has no parameter `{key}`")),
            None => Ok(workload),
        }
    }

    /// The workload named on a kernel command line (`vsteer.workload=...`), if one is.
    pub fn on_command_line(cmdline: &str) -> Option<&str> {
        cmdline.split_whitespace().find_map(|word| word.strip_prefix("vsteer.workload="))
    }
}

/// A workload whose parameters are numbers: `take` gives one by its name, or the default. `None`: no workload is called that.
fn of_numbers(kind: &str, take: &mut dyn FnMut(&str, f64) -> f64) -> Option<Workload> {
    let ns = |value: f64, unit_ns: f64| ((value * unit_ns) as u64).max(1);
    Some(match kind {
        "idle" => Workload::Idle,
        "burn" => Workload::Burn,
        "periodic" => Workload::Periodic {
            period_ns: ns(take("period_us", 10_000.0), 1e3),
            work_units: take("work_units", 0.0) as u64,
            phase_ns: Some(take("phase_us", 0.0)).filter(|us| *us > 0.0).map(|us| (us * 1e3) as u64),
        },
        "server" => Workload::Server {
            rate_hz: take("rate_hz", 50.0),
            mean_units: take("mean_units", 200.0),
            seed: take("seed", 1.0) as u64,
        },
        "burst" => {
            Workload::Burst { on_ns: ns(take("on_ms", 50.0), 1e6), off_ns: ns(take("off_ms", 50.0), 1e6) }
        }
        "sleeper" => Workload::Sleeper {
            sleep_ns: ns(take("sleep_us", 30_000.0), 1e3),
            work_units: take("work_units", 100.0) as u64,
            background_units: take("background_units", 0.0) as u64,
            call: take("call", 0.0) > 0.0,
        },
        "flood" => Workload::Flood { timer_ns: ns(take("timer_us", 1.0), 1e3) },
        "build" => Workload::Build { jobs: take("jobs", 4.0) as u64 },
        "switch" => Workload::Switch,
        "niced" => Workload::Niced { nice: take("nice", 5.0).min(19.0) as i32 },
        "play" => Workload::Play { background: take("background", 0.0) > 0.0, call: take("call", 0.0) > 0.0 },
        "waker" => Workload::Waker {
            every_ns: ns(take("every_us", 1_000.0), 1e3),
            sleep_ns: ns(take("sleep_us", 70.0), 1e3),
        },
        _ => return None,
    })
}

/// The value of a key that is there, once.
fn take_word<'a>(given: &mut Vec<(&str, &'a str)>, key: &str) -> Option<&'a str> {
    let at = given.iter().position(|(k, _)| *k == key)?;
    Some(given.remove(at).1)
}

fn number(key: &str, value: &str) -> Result<f64, String> {
    let number: f64 = value.parse().map_err(|_| format!("`{key}={value}`: not a number"))?;
    if number > 0.0 && number <= 1e12 {
        Ok(number)
    } else {
        Err(format!("`{key}={value}` is not between 0 and 1e12"))
    }
}

/// What the words beside `rates` make of it; those that it does not know it leaves.
fn scheduled(rates: &str, given: &mut Vec<(&str, &str)>) -> Result<Schedule, String> {
    let rates = requests::rates(rates)?;
    let mut take =
        |key: &str, default: f64| take_word(given, key).map_or(Ok(default), |value| number(key, value));
    let (mean_units, seed) = (take("mean_units", 200.0)?, take("seed", 1.0)? as u64);
    let service = match take_word(given, "service").unwrap_or("exponential") {
        "fixed" => Service::Fixed,
        "exponential" => Service::Exponential,
        "mixed" => Service::Mixed,
        other => return Err(format!("`service={other}`: it is fixed, exponential or mixed")),
    };
    let spacing = match take_word(given, "arrivals").unwrap_or("poisson") {
        "poisson" => Spacing::Poisson,
        "periodic" => Spacing::Periodic,
        "bursts" => {
            let mut take =
                |key: &str, default: f64| take_word(given, key).map_or(Ok(default), |v| number(key, v));
            let (mean, gap_us) = (take("burst", 5.0)?, take("burst_gap_us", 2_000.0)?);
            if mean < 1.0 {
                return Err(format!("`burst={mean}`: a burst has one request or more"));
            }
            Spacing::Bursts { mean, gap_ns: gap_us * 1e3 }
        }
        other => return Err(format!("`arrivals={other}`: they are poisson, periodic or bursts")),
    };
    Ok(Schedule { rates, spacing, service, mean_units, seed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Interval;

    #[test]
    fn a_server_may_follow_a_schedule() {
        let of = |rates: &[(f64, f64)], spacing, service, mean_units, seed| {
            let rates = rates.iter().map(|&(rate, seconds)| Interval { rate, seconds }).collect();
            Ok(Workload::Scheduled(Schedule { rates, spacing, service, mean_units, seed }))
        };
        assert_eq!(
            Workload::parse("server,rates=15@240/0@60/10.5@2,mean_units=100,seed=7"),
            of(&[(15.0, 240.0), (0.0, 60.0), (10.5, 2.0)], Spacing::Poisson, Service::Exponential, 100.0, 7)
        );
        let bursts = |mean, gap_ns| Spacing::Bursts { mean, gap_ns };
        assert_eq!(
            Workload::parse("server,arrivals=bursts,service=mixed,rates=1@2"),
            of(&[(1.0, 2.0)], bursts(5.0, 2e6), Service::Mixed, 200.0, 1)
        );
        assert_eq!(
            Workload::parse("server,rates=1@2,burst_gap_us=100,arrivals=bursts,burst=2.5,service=fixed"),
            of(&[(1.0, 2.0)], bursts(2.5, 1e5), Service::Fixed, 200.0, 1)
        );
        let periodic = Workload::parse("server,rates=1@2,arrivals=periodic").unwrap();
        assert!(matches!(&periodic, Workload::Scheduled(s) if s.spacing == Spacing::Periodic));
        assert_eq!(periodic.kind(), "server");
        for (text, named) in [
            ("server,rates=15@240/45", "`45`"),
            ("server,rates=1@2,rate_hz=5", "rate_hz"),
            ("server,rates=1@2,rates=1@2", "rates"),
            ("server,rates=1@2,arrivals=often", "arrivals=often"),
            ("server,rates=1@2,service=slow", "service=slow"),
            ("server,rates=1@2,mean_units=x", "mean_units=x"),
            ("server,rates=1@2,burst=3", "burst"),
            ("server,rates=1@2,arrivals=bursts,burst=0.5", "burst=0.5"),
            ("server,service=fixed", "service"),
            ("periodic,rates=1@2", "rates"),
        ] {
            let why = Workload::parse(text).unwrap_err();
            assert!(why.contains(named), "{text}: {why}");
        }
    }

    #[test]
    fn defaults_and_parameters() {
        assert_eq!(Workload::parse("burn\n"), Ok(Workload::Burn));
        assert_eq!(
            Workload::parse("periodic"),
            Ok(Workload::Periodic { period_ns: 10_000_000, work_units: 0, phase_ns: None })
        );
        assert_eq!(
            Workload::parse("periodic,period_us=2500,work_units=50"),
            Ok(Workload::Periodic { period_ns: 2_500_000, work_units: 50, phase_ns: None })
        );
        assert_eq!(
            Workload::parse("server,seed=7,rate_hz=0.5"),
            Ok(Workload::Server { rate_hz: 0.5, mean_units: 200.0, seed: 7 })
        );
        assert_eq!(
            Workload::parse("burst,on_ms=5"),
            Ok(Workload::Burst { on_ns: 5_000_000, off_ns: 50_000_000 })
        );
        assert_eq!(Workload::parse("waker"), Ok(Workload::Waker { every_ns: 1_000_000, sleep_ns: 70_000 }));
    }

    #[test]
    fn a_program_has_words() {
        let words = ["loops", "static", "200"].map(str::to_owned).to_vec();
        let program = Workload::parse("program,run=loops/static/200").unwrap();
        assert!(program == Workload::Program { words } && program.needs_linux());
        assert!(Workload::parse("program").is_err() && Workload::parse("program,run=a,b=1").is_err());
    }

    #[test]
    fn a_mistake_is_an_error_and_not_a_default() {
        for text in
            ["", "brun", "burn,period_us=5", "periodic,period_us", "periodic,period_us=x", "burst,on_ms=0"]
        {
            assert!(Workload::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_workload_may_begin_later() {
        let plan = Plan::parse("periodic,start_ms=8000,period_us=5000\n").unwrap();
        assert_eq!(
            (plan.start_ns, plan.workload),
            (8_000_000_000, Workload::Periodic { period_ns: 5_000_000, work_units: 0, phase_ns: None })
        );
        assert_eq!(Plan::parse("burn").unwrap().start_ns, 0);
        assert!(Plan::parse("burn,start_ms=soon").is_err() && Plan::parse("brun,start_ms=5").is_err());
    }

    #[test]
    fn the_kernel_command_line() {
        let cmdline = "console=ttyS0 vsteer.workload=periodic,period_us=5000 quiet\n";
        assert_eq!(Workload::on_command_line(cmdline), Some("periodic,period_us=5000"));
        assert_eq!(Workload::on_command_line("console=ttyS0"), None);
    }
}
