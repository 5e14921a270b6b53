//! Priority levels and their names.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The urgency of a request, as the number of its level. Level 0 is the most urgent.
///
/// The more urgent of two priorities compares as the greater one.
///
/// ```
/// use tower_triage::Priority;
///
/// let (high, normal) = (Priority(0), Priority(1));
/// assert!(high > normal);
/// assert_eq!(high.max(normal), Priority::HIGHEST);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// The most urgent level.
    pub const HIGHEST: Self = Self(0);
}

/// Orders priorities by urgency, so the lower number is the greater priority.
impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.cmp(&self.0)
    }
}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The names of the priority levels, highest first, and the level that unknown names get.
///
/// Names are compared without regard to ASCII case and to surrounding white space. By default the levels are `high` and
/// `normal`, and an unknown name gets `normal`.
///
/// ```
/// use tower_triage::{PriorityLevels, Priority};
///
/// let levels = PriorityLevels::default();
/// assert_eq!(levels.parse(b" HIGH "), Priority(0));
/// assert_eq!(levels.parse(b"urgent"), Priority(1));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PriorityLevels {
    names: Arc<[Box<str>]>,
    default: Priority,
}

impl PriorityLevels {
    /// Creates the levels called `names`, highest first. Unknown names get the level called `default`.
    ///
    /// # Errors
    ///
    /// Returns an error if `names` is empty or has more than 32 names. A name must neither be empty, nor begin or end
    /// with white space, nor be given twice, and `default` must be one of the names.
    pub fn new<N: Into<String>>(
        names: impl IntoIterator<Item = N>,
        default: &str,
    ) -> Result<Self, InvalidPriorityLevels> {
        let names: Vec<Box<str>> = names.into_iter().map(|name| name.into().into()).collect();
        if names.is_empty() {
            return Err(InvalidPriorityLevels::None);
        }
        if names.len() > MAX_LEVELS {
            return Err(InvalidPriorityLevels::TooMany(names.len()));
        }
        for (i, name) in names.iter().enumerate() {
            if name.is_empty() || name.trim() != &**name {
                return Err(InvalidPriorityLevels::Blank(name.to_string()));
            }
            if names[..i].iter().any(|n| n.eq_ignore_ascii_case(name)) {
                return Err(InvalidPriorityLevels::Twice(name.to_string()));
            }
        }
        let default = find(&names, default.trim().as_bytes()).ok_or_else(|| {
            InvalidPriorityLevels::UnknownDefault {
                default: default.to_owned(),
                names: names.iter().map(|name| name.to_string()).collect(),
            }
        })?;
        Ok(Self {
            names: names.into(),
            default,
        })
    }

    /// Returns the level that `value` names, or the default level if the name is unknown. This allocates no memory.
    #[must_use]
    pub fn parse(&self, value: &[u8]) -> Priority {
        find(&self.names, value.trim_ascii()).unwrap_or(self.default)
    }

    /// Returns the level of requests without a priority.
    #[must_use]
    pub fn default_priority(&self) -> Priority {
        self.default
    }

    /// Returns the name of a level. A priority below the lowest level gets the name of the lowest level.
    #[must_use]
    pub fn name(&self, priority: Priority) -> &str {
        &self.names[self.clamp(priority).0 as usize]
    }

    /// Returns all names, highest first.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Returns the number of levels.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns `priority`, or the lowest level if `priority` is below that.
    #[must_use]
    #[inline]
    pub fn clamp(&self, priority: Priority) -> Priority {
        // The lower of two priorities has the higher number, so `max` never goes below the last level.
        priority.max(Priority((self.names.len() - 1) as u8))
    }
}

impl Default for PriorityLevels {
    fn default() -> Self {
        Self {
            names: ["high".into(), "normal".into()].into(),
            default: Priority(1),
        }
    }
}

impl fmt::Debug for PriorityLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriorityLevels")
            .field("names", &self.names)
            .field("default", &self.name(self.default))
            .finish()
    }
}

/// The highest number of levels. Each level costs each lane a queue, and more than a few levels are of little use.
pub(crate) const MAX_LEVELS: usize = 32;

fn find(names: &[Box<str>], name: &[u8]) -> Option<Priority> {
    names
        .iter()
        // Most callers write the name exactly as it was configured, so one comparison of memory settles most cases.
        .position(|n| n.as_bytes() == name || n.as_bytes().eq_ignore_ascii_case(name))
        .map(|i| Priority(i as u8))
}

/// An error in the names of the priority levels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPriorityLevels {
    /// The list of names is empty.
    #[error("`priorities` is empty: name at least one level, highest first")]
    None,
    /// The list has more names than there may be levels.
    #[error("`priorities` has {0} names, at most {MAX_LEVELS} are supported")]
    TooMany(usize),
    /// The name is empty or has white space around it, so a trimmed header value could not match it.
    #[error(
        "`priorities` has the name {0:?}: names must not be empty or begin or end with white space"
    )]
    Blank(String),
    /// Two levels have the same name.
    #[error("`priorities` names {0:?} twice (case is ignored)")]
    Twice(String),
    /// The default differs from the names of all levels.
    #[error(
        "`default_priority` is {default:?}: it must be one of `priorities`, which are {names:?}"
    )]
    UnknownDefault {
        /// The name of the default.
        default: String,
        /// The names of the levels, highest first.
        names: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_trimmed_and_case_insensitively() {
        let levels = PriorityLevels::default();
        for high in [&b"high"[..], b"HIGH", b" High ", b"\thigh\t"] {
            assert_eq!(levels.parse(high), Priority(0), "{high:?}");
        }
        for normal in [&b"normal"[..], b"low", b"urgent", b"", b"h\xffgh", b"hi gh"] {
            assert_eq!(levels.parse(normal), Priority(1), "{normal:?}");
        }
    }

    #[test]
    fn the_more_urgent_priority_is_greater() {
        assert!(Priority(0) > Priority(1) && Priority(1) > Priority(u8::MAX));
        let mut all: Vec<_> = (0..=u8::MAX).map(Priority).collect();
        all.sort();
        assert_eq!(all.last(), Some(&Priority::HIGHEST));
        assert_eq!(Priority::HIGHEST.cmp(&Priority(0)), Ordering::Equal);
    }

    #[test]
    fn priorities_below_the_lowest_level_are_clamped() {
        let levels = PriorityLevels::default();
        let clamped = [0, 1, 2, u8::MAX].map(|n| levels.clamp(Priority(n)).0);
        assert_eq!(clamped, [0, 1, 1, 1]);
        assert_eq!(levels.name(Priority(7)), "normal");
    }

    #[test]
    fn bad_names_are_refused_with_the_name() {
        let new =
            |names: &[&str], default: &str| PriorityLevels::new(names.iter().copied(), default);
        assert_eq!(new(&[], "x"), Err(InvalidPriorityLevels::None));
        assert_eq!(
            new(&["a", "A"], "a"),
            Err(InvalidPriorityLevels::Twice("A".into()))
        );
        assert_eq!(
            new(&["a", " b"], "a"),
            Err(InvalidPriorityLevels::Blank(" b".into()))
        );
        assert_eq!(
            new(&["a"], "c"),
            Err(InvalidPriorityLevels::UnknownDefault {
                default: "c".into(),
                names: vec!["a".into()],
            })
        );
        assert!(new(&["a", "b", "c"], "C").is_ok());
        let many = |names: u8| PriorityLevels::new((0..names).map(|n| n.to_string()), "0");
        assert!(many(32).is_ok());
        assert_eq!(many(33), Err(InvalidPriorityLevels::TooMany(33)));
    }
}
