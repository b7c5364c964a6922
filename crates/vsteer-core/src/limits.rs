//! How much of what others give does vsteer read, and how long does it wait for it? Every limit, in one place.
//!
//! Other users' processes, files and servers can give bytes without end, or none. A limit is far above what is
//! useful: what exceeds it is a fault or an attack. A reader takes at most one byte more than its
//! limit, and says which limit it met.
//!
//! To add a limit, add a constant and use it. Left out: limits that a format states for itself (the columns of an
//! esxtop file), which stand where it is read.

use std::time::Duration;

/// A text file that a person writes: a scenario, an experiment, service levels, a description of a host. Bytes.
pub const TEXT_FILE: u64 = 16 << 20;
/// vsteer's configuration: the shipped file, which explains every key, has some 10 kB. Bytes.
pub const CONFIGURATION: u64 = 1 << 20;
/// Faults of one configuration that are shown. Each has several lines.
pub const CONFIGURATION_FAULTS: usize = 50;
/// A plan: it holds the configuration of a host, some kB for each VM. Bytes.
pub const PLAN: u64 = 64 << 20;
/// The names of tasks and the marks of a recording, a line each. Bytes.
pub const RECORDING_TEXT: u64 = 128 << 20;
/// The journal of a history. An hour of 1,000 VMs has some 100 MB. Bytes.
pub const HISTORY_JOURNAL: u64 = 1 << 30;
/// A line of that journal: a minute. Bytes.
pub const HISTORY_LINE: u64 = 64 << 20;
/// A day of a history, a Parquet file. 1,000 VMs have some 50 MB. Bytes.
pub const HISTORY_FILE: u64 = 1 << 30;
/// Rows of such a file.
pub const HISTORY_ROWS: i64 = 50_000_000;
/// A row group of such a file, uncompressed. vsteer's have some 2 MB. Bytes.
pub const HISTORY_GROUP: i64 = 256 << 20;
/// The last moment of a history, in the year 9000: dates end in 9999. Milliseconds since 1970.
pub const HISTORY_LAST_MS: u64 = 221_845_392_000_000;
/// A saved trace of Xen, which is read as a whole. Bytes.
pub const XEN_TRACE: u64 = 256 << 20;
/// Threads of a text trace of Linux' scheduler: a busy host starts some 100,000 in an hour.
pub const TRACE_THREADS: usize = 1 << 18;
/// VMs of such a trace. The accounts have numbers for three times as many.
pub const TRACE_VMS: usize = 10_000;
/// Different names of threads in such a trace that blame tells apart.
pub const TRACE_NAMES: usize = 4096;
/// The largest number of a pCPU in such a trace: the kernel's NR_CPUS on x86 is at most 8,192.
pub const TRACE_PCPU: u32 = 8191;
/// Switches and wake-ups of such a trace that vsteer keeps in memory, 12 bytes each. Counters need none of them.
pub const TRACE_SWITCHES: u64 = 16 << 20;
/// Samples of such a trace.
pub const TRACE_SAMPLES: u64 = 3600;
/// Samples of such a trace times its VMs' threads. Each takes some 500 bytes.
pub const TRACE_THREAD_SAMPLES: u64 = 500_000;
/// A line of such a trace. Other events than those of the scheduler may print some kB.
pub const TRACE_LINE: u64 = 1 << 20;
/// What may stand before the header of a batch file of esxtop: messages of a login, a spreadsheet's own line. Bytes.
pub const ESXTOP_PREAMBLE: usize = 64 << 10;
/// Rows of such a file that wait until the interval between rows is known. 64 rows of a large host have 15 MB. Bytes.
pub const ESXTOP_HELD: usize = 64 << 20;
/// The start of a file whose kind is not known. Bytes.
pub const SNIFFED: usize = 64 << 10;
/// The window of a Zstandard frame, which a decoder holds in memory. RFC 8878 asks decoders for 8 MiB, `zstd --long` uses 128 MiB.
/// Bytes.
pub const ZSTD_WINDOW: u64 = 128 << 20;
/// A line of an access log. Servers limit a request to some kB. Bytes.
pub const LOG_LINE: u64 = 1 << 20;
/// Part of a log's lines that may be of another format without a word from the person: a line that a crash cut, a message of the
/// server itself.
pub const ODD_LOG_LINES: f64 = 0.01;
/// A page of metrics, also after decompression. That of the largest exporters has some 2 MB. Bytes.
pub const METRICS_PAGE: u64 = 16 << 20;
/// Buckets of the wanted histogram in a page. Text within [`METRICS_PAGE`] has fewer.
pub const METRICS_BUCKETS: usize = 1_000_000;
/// Different bounds of a histogram. A native histogram has some 160, and a classic one some 10.
pub const METRICS_BOUNDS: usize = 5_000;
/// Names of other histograms in a page that vsteer keeps, to tell what is there.
pub const METRICS_NAMES: usize = 1_000;
/// Series of the wanted histogram that a Prometheus server stores. One per target, method, path and status.
pub const METRICS_SERIES: usize = 50_000;
/// Scrapes in a folder: a year, one every 40 s.
pub const METRICS_FOLDER: usize = 800_000;
/// A journal. Bytes.
pub const JOURNAL: u64 = 256 << 20;
/// A file of the host or of a captured host. `/proc/cpuinfo` of 8,192 pCPUs has some 12 MB. Bytes.
pub const HOST_FILE: u64 = 32 << 20;
/// A file that a plan changes. A boot loader's menu has some 100 kB. Bytes.
pub const CHANGED_FILE: u64 = 4 << 20;
/// A process's command line. That of a QEMU with 100 disks has some 50 kB. Bytes.
pub const COMMAND_LINE: u64 = 1 << 20;
/// A VM's name, characters. Every row contains it. libvirt and vSphere allow only shorter names.
pub const VM_NAME: usize = 255;
/// What a command of a plan or experiment prints. Bytes.
pub const PRINTED: u64 = 1 << 20;

/// A VM's monitor: all that it sends. An answer for 1,000 vCPUs has some 200 kB. Bytes.
pub const MONITOR_BYTES: usize = 1 << 20;
/// A VM's monitor: lines before the answer. It sends fewer, even with events in between.
pub const MONITOR_LINES: usize = 200;
/// A VM's monitor: from the connection to the answer.
pub const MONITOR_TIME: Duration = Duration::from_millis(500);
/// All monitors of one look at the VMs.
pub const MONITORS_TIME: Duration = Duration::from_secs(2);

/// An answer of libvirt: a list of 1,000 VMs with two XML descriptions each has some 30 MB. Bytes.
pub const LIBVIRT_BYTES: usize = 256 << 20;
/// An answer of libvirt. It gives QEMU's monitor up to 30 s itself, but vsteer cannot steer a host that slow.
pub const LIBVIRT_TIME: Duration = Duration::from_secs(20);
/// An answer of vsteer's agent on another host, a line. 10,000 threads with distributions have some 25 MB. What such a
/// line can hold takes about a gigabyte of memory at most. Bytes.
pub const AGENT_ANSWER: usize = 32 << 20;
/// The first line of an agent, which names its version. Bytes.
pub const AGENT_HELLO: usize = 4 << 10;
/// A request to an agent, a line: the names of VMs. Bytes.
pub const AGENT_REQUEST: usize = 64 << 10;
/// A text of an agent: a note, a cause, the last words of its ssh. Bytes.
pub const AGENT_TEXT: usize = 4 << 10;
/// From the start of ssh to the agent's first line. ssh itself waits 20 s for the connection.
pub const AGENT_LOGIN_TIME: Duration = Duration::from_secs(40);
/// An agent that looks for VMs and starts to count. Its libvirt has [`LIBVIRT_TIME`].
pub const AGENT_OPEN_TIME: Duration = Duration::from_secs(60);
/// An agent's answer to any other request, from the request to its last byte.
pub const AGENT_TIME: Duration = Duration::from_secs(30);
/// How long the other side of a pipe to or from an agent may take nothing of what is written.
pub const AGENT_WRITE_TIME: Duration = Duration::from_secs(30);
/// An agent ends if it hears nothing for this long. vsteer sends something every fifth of this time.
pub const AGENT_SILENCE: Duration = Duration::from_secs(300);
/// Sending vsteer itself to another host.
pub const AGENT_COPY_TIME: Duration = Duration::from_secs(900);
/// A tool of Xen's, also over ssh.
pub const XEN_TOOL_TIME: Duration = Duration::from_secs(60);
/// A page of metrics, from the connection to its last byte.
pub const SCRAPE_TIME: Duration = Duration::from_secs(3);
/// A query to a Prometheus server, to the last byte of the answer. The server itself ends a query after 2 min.
pub const QUERY_TIME: Duration = Duration::from_secs(130);
/// A lock on a journal that another vsteer holds.
pub const JOURNAL_LOCK_TIME: Duration = Duration::from_secs(30);

/// Notes of one run: they name VMs and processes, and anyone can start more of these.
pub const NOTES: usize = 1000;
