//! Numbers in error messages, which show very large and very small values without their long rows of zeros.

use std::fmt;

/// A number in the form that a message shows, such as `30`, `0.5` or `1e300`.
pub(crate) struct Short(pub(crate) f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size == 0.0 || (1e-4..1e16).contains(&size) || !size.is_finite() {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{:e}", self.0)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Short;

    #[test]
    fn zeros_that_say_nothing_are_left_out() {
        for (number, text) in [
            (0.0, "0"),
            (-1.0, "-1"),
            (0.5, "0.5"),
            (1e15, "1000000000000000"),
            (1e300, "1e300"),
            (-1.5e300, "-1.5e300"),
            (1e-9, "1e-9"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(Short(number).to_string(), text);
        }
    }
}
