//! Any word is one of those that options and files take, or is refused: commands, times, changes, places, versions.

use vsteer_core::numa::vnuma::Version;
use vsteer_core::plan::set::Setting;
use vsteer_core::setting::argv::Argv;
use vsteer_core::setting::uri;
use vsteer_core::span::Span;
use vsteer_host::scrape::Place;
use vsteer_record::prometheus::Histogram;
use vsteer_sim::scenario::headroom::Level;

pub fn run(bytes: &[u8]) -> bool {
    let text = crate::text(bytes);
    let place = Place::parse(text);
    if let Ok(place) = &place {
        assert_eq!(Place::parse(&place.to_string()).as_ref(), Ok(place));
    }
    let _ = uri::from_file(text, &[]);
    [
        Argv::parse(text).is_ok(),
        text.parse::<Span>().is_ok(),
        text.parse::<Setting>().is_ok(),
        text.parse::<Histogram>().is_ok(),
        text.parse::<Level>().is_ok(),
        Version::parse(text).is_some(),
        place.is_ok(),
    ]
    .contains(&true)
}

pub fn seeds() -> Vec<Vec<u8>> {
    crate::seeds_of(&[
        "tuned-adm profile 'a b'",
        "-5m",
        "web-1.weight=400",
        "m{a=\"b\"}",
        "https://[::1]:9100/metrics",
        "8.0.2",
        "ready=5%",
    ])
}
