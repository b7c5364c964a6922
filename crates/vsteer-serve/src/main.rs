//! `vsteer-serve`, also available as `vsteer serve`: observes a host for as long as it runs, and answers HTTP.
//!
//! ```text
//! options   the command line               listen    the socket and the addresses
//! watch     the thread that observes       seen      the newest state of the host
//! totals    counters that never fall       culprits  who made which VM wait, bounded
//! metrics   Prometheus' metrics            http      who gets an answer, limits, answers
//! files     tokens and certificates        textfile  metrics for node_exporter
//! own       what the service costs         print     manual page and completions
//! history   rows of minutes and hours      forecasts  plans and what-if questions
//! spaced    samples 15 seconds apart
//! live      what the page hears           ring      the last 15 minutes
//! triggers  tells others of findings      deliveries  what became of that
//! memory    freed memory is kept
//! prometheus  rules, alerts, dashboards   otlp     metrics to a collector, with the feature `otlp`
//! ```
//!
//! One thread observes and keeps the privileges that observing needs. All others, which read what clients send, have none.

mod culprits;
mod deliveries;
mod files;
mod forecasts;
mod history;
mod http;
mod listen;
mod live;
mod memory;
mod metrics;
mod options;
#[cfg(feature = "otlp")]
mod otlp;
mod own;
mod print;
mod prometheus;
mod ring;
mod seen;
mod spaced;
mod stop;
mod textfile;
mod totals;
mod triggers;
mod watch;

use forecasts::Forecasts;
use http::{Access, Service, Source};
use listen::{Place, Socket, socket_of};
use options::Options;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use stop::Stop;
use triggers::{Triggers, Watching};
use vsteer_core::thresholds::Thresholds;
use vsteer_core::{Fault, FaultKind};
use vsteer_host::backend::Request;
use vsteer_host::privilege::{CapabilitySet, Kept, confine};
use vsteer_host::{hypervisors, service_manager};
use vsteer_record::config::Config;

/// How often the file for node_exporter is written: node_exporter is scraped every 15 s or so.
const TEXTFILE_EVERY: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    memory::keep();
    match options::read().and_then(|(options, config)| run(&options, &config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::from(fault.kind.exit_code())
        }
    }
}

fn run(options: &Options, config: &Config) -> Result<(), Fault> {
    let thresholds = config.thresholds();
    if let Some(what) = &options.print {
        print::print(what, &thresholds);
        return Ok(());
    }
    let triggers = Triggers::of(config)?;
    if let Some(name) = &options.try_trigger {
        triggers.try_one(name)?;
        println!("a message of trigger {name} arrived");
        return Ok(());
    }
    #[cfg(feature = "otlp")]
    let collector = options.otlp.as_deref().map(otlp::target).transpose()?;
    let access = Arc::new(Access::of(options)?);
    let places = listen::all(options)?;
    let _socket = Socket(socket_of(options).map(Path::to_owned));
    let (stop, (newest, seen)) = (Stop::default(), tokio::sync::watch::channel(None));
    let journals = config.folder("paths.state").map(|state| state.join("journal"));
    let journals = journals.unwrap_or_else(vsteer_record::applied::usual_folder);
    let (keep, keeper) = history::start(options.history.as_deref(), journals, thresholds)?.unzip();
    let tell = watch::Tell { newest, history: keep, deliveries: Arc::new(triggers.deliveries()) };
    let (observer, begun) = observe(options, thresholds, &stop, tell)?;
    // Nothing comes from a thread that has ended: its result says why.
    if begun.recv().is_err() {
        return ended(observer);
    }
    drop_privileges(options)?;
    let (watching, deliverers) = triggers.start(&stop)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Fault::io("starting the server", &e))?;
    let forecasts = Arc::new(Forecasts::new(thresholds));
    let history = keeper.as_ref().and_then(|_| history::folder(options.history.as_deref()));
    let (compat_names, connect) = (options.compat_names, options.connect.clone());
    let source = Source { seen, compat_names, connect, forecasts, history, live: Arc::default() };
    #[cfg(feature = "otlp")]
    collector.map(|to| runtime.spawn(otlp::run(to, source.clone())));
    let served = runtime.block_on(serve(options, places, source, access, watching));
    stop.set();
    // Its tasks go with it, and with them the queues of triggers. Queries that still run are not waited for.
    runtime.shutdown_background();
    deliverers.finish();
    let observed = ended(observer);
    // The observer has dropped its end, so the history stores its last minute and ends.
    keeper.into_iter().for_each(history::Keeper::finish);
    observed.and(served)
}

/// The thread that observes. Its result says why it ended.
type Observer = JoinHandle<Result<(), Fault>>;

fn ended(observer: Observer) -> Result<(), Fault> {
    observer.join().unwrap_or_else(|_| Err(Fault::new(FaultKind::Failed, "the thread that observes failed")))
}

/// Starts the thread that observes. The receiver hears when the thread has begun, and has dropped what it does not need.
fn observe(
    options: &Options,
    thresholds: Thresholds,
    stop: &Stop,
    tell: watch::Tell,
) -> Result<(Observer, Receiver<()>), Fault> {
    let request = Request {
        collector: options.collector,
        vms: options.vms.clone(),
        login: options.login(),
        ..Request::of(options.connect.as_deref())
    };
    let (stop, interval) = (stop.clone(), options.interval);
    let (begins, begun) = sync_channel(1);
    let observing = move || {
        // The host stays in this thread.
        let mut host = hypervisors::open(&request)?;
        host.take_notes().iter().for_each(|note| eprintln!("vsteer-serve: note: {note}"));
        // Asks libvirt, whose process then runs already.
        host.config()?;
        if let Some(kept) = host.still_needs() {
            confine(kept, &[])?;
        }
        let _ = begins.send(());
        drop(begins);
        watch::observe(host.as_mut(), interval, thresholds, &stop, &tell)
    };
    let thread = std::thread::Builder::new().name("observe".to_owned()).spawn(observing);
    Ok((thread.map_err(|e| Fault::io("starting the thread that observes", &e))?, begun))
}

/// This thread, and those that it starts, speak with clients. They need no privilege, and write to two folders at most.
fn drop_privileges(options: &Options) -> Result<(), Fault> {
    let files = [socket_of(options), options.textfile.as_deref()].into_iter().flatten();
    let folders: Vec<&Path> = files.filter_map(Path::parent).collect();
    confine(Kept { capabilities: CapabilitySet::empty(), writes_elsewhere: false }, &folders).map(drop)
}

/// Answers until a signal comes, or the observer ends.
async fn serve(
    options: &Options,
    places: Vec<Place>,
    source: Source,
    access: Arc<Access>,
    watching: Watching,
) -> Result<(), Fault> {
    let service = Service::new(source.clone(), Arc::clone(&access));
    places.into_iter().try_for_each(|place| service.answer_at(place))?;
    tokio::spawn(live::run(source.seen.clone(), Arc::clone(&source.live)));
    tokio::spawn(triggers::run(source.seen.clone(), watching));
    tokio::spawn(renew(access));
    if let Some(path) = options.textfile.clone() {
        tokio::spawn(write_textfile(path, source.clone()));
    }
    let (mut seen, mut is_ready) = (source.seen, false);
    let failed = |e: std::io::Error| Fault::io("listening for signals", &e);
    let mut terminated =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(failed)?;
    loop {
        // Only now does every question have an answer.
        if !is_ready && seen.borrow_and_update().is_some() {
            service_manager::ready();
            is_ready = true;
        }
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => return interrupted.map_err(failed),
            _ = terminated.recv() => return Ok(()),
            changed = seen.changed() => if changed.is_err() { return Ok(()) },
        }
    }
}

fn warn(fault: &Fault) {
    eprintln!("vsteer-serve: warning: {fault}");
}

async fn renew(access: Arc<Access>) {
    let mut every = tokio::time::interval(files::RENEW_EVERY);
    loop {
        every.tick().await;
        access.renew().iter().for_each(warn);
    }
}

async fn write_textfile(path: std::path::PathBuf, source: Source) {
    // The first one as soon as there is something to write.
    let mut seen = source.seen.clone();
    if seen.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let mut every = tokio::time::interval(TEXTFILE_EVERY);
    let mut failing = false;
    loop {
        every.tick().await;
        let Some(seen) = source.seen.borrow().clone() else { continue };
        let written = textfile::write(&path, &seen, source.compat_names);
        // Once, and not every ten seconds.
        if let Err(fault) = &written
            && !failing
        {
            warn(fault);
        }
        failing = written.is_err();
    }
}
