//! Edits of the fields of a JSON object, which leave the rest of its text as it is.

use std::borrow::Cow;

use super::json::{NotJson, Reader, unescaped};

/// The edits of the fields at the top level of an object.
#[derive(Debug, Default)]
pub(crate) struct Edits<'a> {
    /// The fields to set, each with its value as JSON. Of two with the same name, the first one counts.
    pub(crate) set: Vec<(&'a str, Cow<'a, str>)>,
    /// The fields to remove, unless they are set.
    pub(crate) strip: Vec<&'a str>,
}

/// The part of an object that has been written.
struct Edited<'t> {
    text: &'t str,
    written: String,
    /// The position after the opening brace.
    open: usize,
    /// `true` once a field has been written, so that the next one needs a comma.
    has_fields: bool,
}

impl Edits<'_> {
    /// Returns the object after the edits. A field that is there keeps its place, and one that is missing becomes the last
    /// one. Returns `None` if the text is not one JSON object.
    pub(crate) fn apply(&self, text: &str) -> Option<String> {
        let mut edited = Edited::begin(text)?;
        let mut is_set = vec![false; self.set.len()];
        let mut end = edited.open;
        let mut json = Reader::new(text);
        let read = json.members(|json, key| {
            json.peek()?;
            let start = json.at();
            json.skip()?;
            let key = unescaped(key).unwrap_or_default();
            match self.set.iter().position(|(name, _)| *name == key) {
                Some(nth) => {
                    is_set[nth] = true;
                    edited.write(end, start, &self.set[nth].1);
                }
                None if self.removes(&key) => {}
                None => edited.write(end, start, text.get(start..json.at()).ok_or(NotJson)?),
            }
            end = json.at();
            Ok(())
        });
        read.and_then(|()| json.end()).ok()?;
        for (nth, (name, value)) in self.set.iter().enumerate() {
            let is_first = self.set.iter().position(|(other, _)| other == name) == Some(nth);
            if is_first && !is_set[nth] {
                edited.add(name, value);
            }
        }
        Some(edited.end(end))
    }

    /// Returns `true` if a field is removed: one to strip, or the name of one to set in another case. Some servers ignore the
    /// case of names.
    fn removes(&self, key: &str) -> bool {
        let mut names = self.set.iter().map(|(name, _)| name).chain(&self.strip);
        names.any(|name| name.eq_ignore_ascii_case(key))
    }
}

impl<'t> Edited<'t> {
    fn begin(text: &'t str) -> Option<Self> {
        let open = text.find('{')? + 1;
        let mut written = String::with_capacity(text.len() + 128);
        written.push_str(text.get(..open)?);
        Some(Self {
            text,
            written,
            open,
            has_fields: false,
        })
    }

    /// Writes a field. Its comma and its name are between the end of the field before it, `end`, and the `start` of its value.
    fn write(&mut self, end: usize, start: usize, value: &str) {
        let mut name = self.text.get(end..start).unwrap_or_default();
        // The fields before were all removed, and so is the comma.
        if !self.has_fields && end != self.open {
            name = name.split_once(',').map_or(name, |(_, name)| name);
        }
        self.written.push_str(name);
        self.written.push_str(value);
        self.has_fields = true;
    }

    /// Adds a field that the text does not have.
    fn add(&mut self, name: &str, value: &str) {
        let comma = if self.has_fields { "," } else { "" };
        let name = serde_json::Value::from(name); // quoted and escaped
        self.written.push_str(&format!("{comma}{name}:{value}"));
        self.has_fields = true;
    }

    /// Writes the rest of the text, which begins at the `end` of the last field.
    fn end(mut self, end: usize) -> String {
        self.written
            .push_str(self.text.get(end..).unwrap_or_default());
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, set: &[(&'static str, &'static str)], strip: &[&'static str]) -> String {
        let edits = Edits {
            set: set
                .iter()
                .map(|&(name, json)| (name, json.into()))
                .collect(),
            strip: strip.to_vec(),
        };
        let edited = edits.apply(text).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&edited).is_ok());
        edited
    }

    #[test]
    fn names_in_another_case_are_removed() {
        let text = r#"{"Top_K":9,"a":1,"TEMPERATURE":2,"b":3}"#;
        let set = [("temperature", "0")];
        let expected = r#"{"a":1,"b":3,"temperature":0}"#;
        assert_eq!(edited(text, &set, &["top_k"]), expected);
    }

    #[test]
    fn a_field_is_set_in_its_place_or_added_at_the_end() {
        let text = r#" { "a" : 1.50 , "b":[1, {"a":2}],"c":"x" } "#;
        for (set, expected) in [
            (("b", "7"), r#" { "a" : 1.50 , "b":7,"c":"x" } "#),
            (
                ("c", "null"),
                r#" { "a" : 1.50 , "b":[1, {"a":2}],"c":null } "#,
            ),
            (
                ("d", "{}"),
                r#" { "a" : 1.50 , "b":[1, {"a":2}],"c":"x","d":{} } "#,
            ),
        ] {
            assert_eq!(edited(text, &[set], &[]), expected);
        }
        assert_eq!(
            edited("{}", &[("a\"", "1"), ("b", "2")], &[]),
            r#"{"a\"":1,"b":2}"#
        );
        assert_eq!(edited("{ }", &[("a", "1")], &[]), r#"{"a":1 }"#);
    }

    #[test]
    fn a_removed_field_takes_one_comma_with_it() {
        let text = r#"{ "a":1, "b":2 , "\u0063":[3] }"#;
        for (strip, expected) in [
            (&["a"][..], r#"{ "b":2 , "\u0063":[3] }"#),
            (&["b"], r#"{ "a":1 , "\u0063":[3] }"#),
            (&["c"], r#"{ "a":1, "b":2 }"#),
            (&["a", "b"], r#"{ "\u0063":[3] }"#),
            (&["a", "c"], r#"{ "b":2 }"#),
            (&["a", "b", "c"], "{ }"),
            (&["x"], text),
        ] {
            assert_eq!(edited(text, &[], strip), expected, "{strip:?}");
        }
        assert_eq!(edited(text, &[("d", "4")], &["a", "b", "c"]), r#"{"d":4 }"#);
    }

    #[test]
    fn a_field_that_is_set_stays_though_it_is_removed_and_the_first_value_counts() {
        let text = r#"{"a":1,"a":2,"b":3}"#;
        assert_eq!(
            edited(text, &[("a", "7")], &["a"]),
            r#"{"a":7,"a":7,"b":3}"#
        );
        assert_eq!(
            edited(text, &[("c", "8"), ("c", "9")], &[]),
            r#"{"a":1,"a":2,"b":3,"c":8}"#
        );
        assert_eq!(edited(text, &[], &["a"]), r#"{"b":3}"#);
    }

    #[test]
    fn a_name_that_is_no_text_is_kept() {
        let text = r#"{"\ud800":{"a":1},"a":2}"#;
        let edits = Edits {
            strip: vec!["a"],
            ..Edits::default()
        };
        assert_eq!(edits.apply(text).unwrap(), r#"{"\ud800":{"a":1}}"#);
    }
}
