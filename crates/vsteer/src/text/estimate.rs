//! Formats estimates.

use super::one_line;
use vsteer_sla::estimate::ALL;
use vsteer_sla::score::{Foretold, LOADED, error};
use vsteer_sla::window::Response;

/// Every interval, and how far off each estimator was.
pub fn all(names: &[&str], foretold: &[Foretold]) -> String {
    let mut out = String::from(
        "response times by estimator, mean / p95, ms (-: no answer, because the load exceeds the pCPUs or is zero)\n",
    );
    let both = |r: &Option<Response>| {
        r.map_or("-".to_owned(), |r| format!("{:.1}/{:.1}", 1e3 * r.mean_s, 1e3 * r.p95_s))
    };
    for (i, f) in foretold.iter().enumerate() {
        out += &format!("\ninterval {} after the first, load {:.0} % of the pCPUs\n", i + 1, 100.0 * f.load);
        out += &format!("   {:<16} {:>13}", "VM", "measured");
        ALL.iter().for_each(|e| out += &format!(" {:>13}", e.name));
        out.push('\n');
        for (k, name) in names.iter().enumerate() {
            out += &format!("   {:<16} {:>13}", one_line(name), both(&f.seen[k]));
            f.told.iter().for_each(|t| out += &format!(" {:>13}", both(&t.told[k])));
            out.push('\n');
        }
    }
    let compared = |above: f64| ALL.iter().any(|e| error(foretold, e.name, above).mean.is_some());
    for (above, words) in [(LOADED, "at loads above 70 %"), (0.0, "over all intervals")] {
        if !compared(above) {
            continue;
        }
        out += &format!("\nerror {words}: mean / p95, %\n   {:<16} {:>13}", "", "");
        let percent = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{:.0}", 100.0 * x));
        for e in &ALL {
            let e = error(foretold, e.name, above);
            out += &format!(" {:>13}", format!("{}/{}", percent(e.mean), percent(e.p95)));
        }
        out.push('\n');
    }
    out
}
