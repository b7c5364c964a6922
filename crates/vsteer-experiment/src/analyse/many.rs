//! How sure is one answer when many questions were asked?
//!
//! Holm's correction: the chance that any of the answers is a false alarm stays at the level, whatever they have to do with each other.
//! Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Stat. 6, 1979.

/// Adjusted p values, in the same order.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let (mut out, mut largest) = (vec![0.0; p.len()], 0.0_f64);
    for (rank, i) in order.into_iter().enumerate() {
        largest = largest.max(((p.len() - rank) as f64 * p[i]).min(1.0));
        out[i] = largest;
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn holm_is_rs() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm"): 0.03 0.06 0.06 0.02.
        let got = super::holm(&[0.01, 0.04, 0.03, 0.005]);
        let want = [0.03, 0.06, 0.06, 0.02];
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{got:?}");
        assert!(super::holm(&[]).is_empty());
    }
}
