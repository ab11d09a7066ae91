//! Search for the largest number that fits.

/// The largest number from `least` to `most` for which `fits` holds. If `fits` holds for a number, it must hold for all
/// smaller ones; it is not called for `least`.
///
/// ```
/// assert_eq!(sbp_record::largest_fitting(0, 10, |count| count * 3 <= 20), 6);
/// assert_eq!(sbp_record::largest_fitting(1, 10, |_| false), 1);
/// ```
pub fn largest_fitting(least: usize, most: usize, fits: impl Fn(usize) -> bool) -> usize {
    // Mostly everything fits.
    if most > least && fits(most) {
        return most;
    }
    let (mut low, mut high) = (least, most.saturating_sub(1).max(least));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::largest_fitting;

    #[test]
    fn it_is_what_counting_finds() {
        for most in 0..20 {
            for least in 0..=most {
                for limit in 0..=most + 1 {
                    let counted = (least..=most).rev().find(|&count| count <= limit).unwrap_or(least);
                    assert_eq!(largest_fitting(least, most, |count| count <= limit), counted);
                }
            }
        }
        assert_eq!(largest_fitting(3, 2, |_| true), 3, "an empty range");
    }

    #[test]
    fn all_that_fits_is_asked_about_once() {
        let asked = Cell::new(0);
        let fits = |_| {
            asked.set(asked.get() + 1);
            true
        };
        assert_eq!(largest_fitting(0, 1_000_000, fits), 1_000_000);
        assert_eq!(asked.get(), 1);
    }
}
