//! Which day is that? Days since 1970-01-01 as Gregorian dates, and back.
//!
//! Source: H. Hinnant, "chrono-compatible low-level date algorithms" (days_from_civil, civil_from_days). Left out: times of day, zones,
//! years before 0.

/// From 0000-03-01, where an era of 400 years begins, to 1970-01-01.
const BEFORE_1970: u64 = 719_468;
const DAYS_OF_ERA: u64 = 146_097;

/// Days since 1970-01-01 of a date from then on: year, month 1 to 12, day 1 to 31.
pub fn days_of(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - BEFORE_1970
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn date_of(days: u64) -> (u64, u64, u64) {
    let shifted = days + BEFORE_1970;
    let (era, day_of_era) = (shifted / DAYS_OF_ERA, shifted % DAYS_OF_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (DAYS_OF_ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates_and_back() {
        for (days, date) in
            [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (11_017, (2000, 3, 1)), (20_781, (2026, 11, 24))]
        {
            assert_eq!((date_of(days), days_of(date.0, date.1, date.2)), (date, days));
        }
        assert!((0..100_000).all(|days| {
            let (y, m, d) = date_of(days);
            days_of(y, m, d) == days
        }));
    }
}
