//! The arguments as they were given: an option's value is the next argument, or follows after `=`.

use std::iter::Peekable;

/// The arguments that have not been read.
pub(super) struct Given<I: Iterator<Item = String>> {
    rest: Peekable<I>,
    /// The value after the `=` of the option that was read last.
    after_equals: Option<String>,
}

impl<I: Iterator<Item = String>> Given<I> {
    pub(super) fn new(args: I) -> Self {
        Self {
            rest: args.peekable(),
            after_equals: None,
        }
    }

    /// Takes the next argument if it is `word`.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        self.rest.next_if(|next| next == word).is_some()
    }

    /// Returns the next argument; of an option, the part before `=`.
    ///
    /// # Errors
    ///
    /// If the option before has a value that was not read, because it takes none.
    pub(super) fn next(&mut self) -> Result<Option<String>, String> {
        if let Some(value) = self.after_equals.take() {
            return Err(format!("{value:?} follows an option that takes no value"));
        }
        let Some(next) = self.rest.next() else {
            return Ok(None);
        };
        let option = next.strip_prefix("--").and_then(|it| it.split_once('='));
        let Some((name, value)) = option else {
            return Ok(Some(next));
        };
        self.after_equals = Some(value.to_owned());
        Ok(Some(format!("--{name}")))
    }

    /// Returns the value of `option`, which was read last.
    pub(super) fn value(&mut self, option: &str) -> Result<String, String> {
        let value = self.after_equals.take().or_else(|| self.rest.next());
        value.ok_or_else(|| format!("{option} needs a value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(line: &str) -> Given<impl Iterator<Item = String>> {
        Given::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_follow_after_a_space_or_an_equals_sign() {
        let mut given = given("--a 1 --b=2 --c== --d= x=y");
        for (option, value) in [("--a", "1"), ("--b", "2"), ("--c", "="), ("--d", "")] {
            assert_eq!(given.next(), Ok(Some(option.to_owned())));
            assert_eq!(given.value(option), Ok(value.to_owned()));
        }
        assert_eq!(given.next(), Ok(Some("x=y".to_owned())));
        assert_eq!(given.next(), Ok(None));
        assert!(given.value("--e").is_err());
    }

    #[test]
    fn a_value_that_is_not_read_is_an_error() {
        let mut given = given("--help=me --a");
        assert_eq!(given.next(), Ok(Some("--help".to_owned())));
        assert!(given.next().unwrap_err().contains("\"me\""));
    }
}
