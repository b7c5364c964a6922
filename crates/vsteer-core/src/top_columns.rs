//! Which columns does the table of `vsteer top` have?
//!
//! They are esxtop's, and some of vsteer's own. The program fills and explains them; the configuration chooses among them.

/// Column headings, after the name of the VM.
pub const COLUMNS: [&str; 20] = [
    "%USED", "%RUN", "%RDY", "%CSTP", "%LAG", "%MLMTD", "%WAIT", "%SYS", "%OVRLP", "N%L", "WAKE99ms", "SW/s",
    "IO/s", "TMR/s", "%TMRLATE", "%TMRREF", "%CPUSOME", "%IOFULL", "%MEMFULL", "%WAKING",
];
