//! The lines in which sections begin, for problems that are found once the whole file was read.

use toml::Spanned;

/// Returns a section, and its line. The default if it is absent.
pub(super) fn section<T: Default>(section: Option<Spanned<T>>, text: &str) -> (T, Option<usize>) {
    let (section, line) = optional(section, text);
    (section.unwrap_or_default(), line)
}

/// Returns a section, and its line.
pub(super) fn optional<T>(section: Option<Spanned<T>>, text: &str) -> (Option<T>, Option<usize>) {
    section.map_or((None, None), |section| {
        let line = line(&section, text);
        (Some(section.into_inner()), Some(line))
    })
}

/// Returns each section of an array, and its line.
pub(super) fn each<T>(sections: Vec<Spanned<T>>, text: &str) -> Vec<(T, usize)> {
    let sections = sections.into_iter().map(|section| {
        let line = line(&section, text);
        (section.into_inner(), line)
    });
    sections.collect()
}

fn line<T>(section: &Spanned<T>, text: &str) -> usize {
    let before = text.get(..section.span().start).unwrap_or_default();
    before.matches('\n').count() + 1
}
