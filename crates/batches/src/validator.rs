//! The validation of an input file before any of its requests runs.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use super::line::{Line, LineError};
use super::line_splitter::TooLong;

/// The largest number of mistakes that a batch lists.
pub(super) const MAX_ERRORS: usize = 100;

/// The mistakes and the number of requests that were found so far.
pub(super) struct Validator<'a> {
    endpoint: &'a str,
    /// Keyed hashes of the names, which take about 16 bytes for each line, however long the names are. For a file of
    /// 50,000 lines, two names have the same hash with a probability of 2^-33. Clients can't provoke this, because the
    /// key is random.
    seen: HashSet<u64>,
    hasher: RandomState,
    errors: Vec<LineError>,
    total: u64,
}

impl<'a> Validator<'a> {
    pub(super) fn new(endpoint: &'a str) -> Self {
        Self {
            endpoint,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            errors: Vec::new(),
            total: 0,
        }
    }

    /// Checks the next line. `check` may refuse a well-formed request.
    pub(super) fn add(
        &mut self,
        number: u64,
        line: Result<&[u8], TooLong>,
        check: impl FnOnce(&Line<'_>) -> Result<(), LineError>,
    ) {
        self.total += 1;
        let error = line
            .map_err(|TooLong| LineError::new("line_too_long", None, "this line is too long"))
            .and_then(|line| {
                let line = Line::parse(line, self.endpoint)?;
                if !self.seen.insert(self.hasher.hash_one(&line.custom_id)) {
                    let message = format!("an earlier line has `custom_id` {:?}", line.custom_id);
                    let param = Some("custom_id");
                    return Err(LineError::new("duplicate_custom_id", param, message));
                }
                check(&line)
            });
        if let Err(error) = error {
            self.errors.push(error.at(number));
        }
    }

    /// Returns `true` if further mistakes would not be listed.
    pub(super) fn has_enough(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    /// Returns the number of requests, or the mistakes.
    pub(super) fn finish(mut self) -> Result<u64, Vec<LineError>> {
        if self.total == 0 {
            let message = "the input file has no request in it";
            self.errors.push(LineError::of_file("empty_file", message));
        }
        match self.errors.is_empty() {
            true => Ok(self.total),
            false => Err(self.errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(custom_id: &str) -> Vec<u8> {
        format!(
            r#"{{"custom_id":"{custom_id}","method":"POST","url":"/v1/e","body":{{"model":"m"}}}}"#
        )
        .into_bytes()
    }

    fn validate(lines: &[Vec<u8>]) -> Result<u64, Vec<LineError>> {
        let mut validator = Validator::new("/v1/e");
        for (number, line) in (1..).zip(lines) {
            validator.add(number, Ok(line), |_| Ok(()));
        }
        validator.finish()
    }

    #[test]
    fn a_repeated_custom_id_is_named_by_its_line() {
        assert_eq!(validate(&[line("a"), line("b")]), Ok(2));
        let errors = validate(&[line("a"), line("b"), line("a")]).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert_eq!(
            (&*errors[0].code, errors[0].line),
            ("duplicate_custom_id", Some(3))
        );
    }

    #[test]
    fn a_file_without_requests_is_empty() {
        let errors = validate(&[]).unwrap_err();
        assert_eq!((&*errors[0].code, errors[0].line), ("empty_file", None));
    }

    #[test]
    fn a_hundred_mistakes_are_enough() {
        let mut validator = Validator::new("/v1/e");
        let mut number = 0;
        while !validator.has_enough() {
            number += 1;
            validator.add(number, Err(TooLong), |_| Ok(()));
        }
        assert_eq!(validator.finish().unwrap_err().len(), 100);
    }
}
