//! Which settings are not beaten by another one in both time and power?
//!
//! Pareto's front: a setting is on it unless another is better in one measure by more than can be doubted and worse
//! in none. Source: V. Pareto, "Manuale di economia politica", 1906. Left out: how many watts a second is worth,
//! which is the person's to say.

/// Costs of one setting (less is better), with the uncertainty of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Cost per measure.
    pub costs: Vec<f64>,
    /// Half of each cost's interval.
    pub margins: Vec<f64>,
}

/// Is `a` better than `b` somewhere beyond doubt, and worse nowhere beyond doubt?
fn beats(a: &Point, b: &Point) -> bool {
    let better_by = |i: usize, a: &Point, b: &Point| {
        b.costs[i] - a.costs[i] > libm::sqrt(a.margins[i] * a.margins[i] + b.margins[i] * b.margins[i])
    };
    let all = 0..a.costs.len();
    all.clone().any(|i| better_by(i, a, b)) && !all.clone().any(|i| better_by(i, b, a))
}

/// Which of these are on the front?
pub fn pareto(points: &[Point]) -> Vec<bool> {
    points.iter().map(|p| !points.iter().any(|q| beats(q, p))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_beaten_in_one_and_better_in_none_is_off() {
        let p = |time: f64, watts: f64| Point { costs: vec![time, watts], margins: vec![1.0, 10.0] };
        // A slow one of little power; a quick one of as little; one that is as quick and needs much power.
        let front = pareto(&[p(130.0, 0.0), p(78.0, 12.0), p(77.5, 89.0)]);
        assert_eq!(front, [false, true, false]);
        // Settings without a clear difference stay, and so do expensive but fast ones.
        assert_eq!(pareto(&[p(100.0, 50.0), p(100.5, 52.0), p(80.0, 90.0)]), [true, true, true]);
    }
}
