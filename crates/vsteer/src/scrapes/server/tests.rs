use super::*;

#[test]
fn the_times_of_recordings_are_asked_for_once() {
    let of = "m".parse().unwrap();
    let asked = |times: &[(u64, u64)], interval: Option<u64>| {
        let interval = interval.map(Duration::from_nanos);
        Asked { of: &of, unit: None, token: None, times, interval }.times()
    };
    // A tenth of an interval on both sides.
    assert_eq!(asked(&[(1000, 2000)], None), [(900, 2100)]);
    assert_eq!(asked(&[(1000, 2000)], Some(100)), [(990, 2010)]);
    // Recordings in any order, which may overlap.
    assert_eq!(asked(&[(5000, 6000), (1000, 2000), (1500, 2500)], Some(100)), [(990, 2510), (4990, 6010)]);
    assert_eq!(asked(&[(5, 60)], Some(1000)), [(0, 160)]);
}
