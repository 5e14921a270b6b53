//! The parser of a set's expression.
//!
//! ```text
//! or   := and ('|' and)*
//! and  := atom ('&' atom)*
//! atom := name | '+' set | '(' or ')'
//! ```

/// A parsed expression, with the columns of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    /// A model, by its short name or its own.
    Name {
        name: String,
        column: usize,
    },
    /// The expression of another set, by the name of that set.
    Set {
        name: String,
        column: usize,
    },
    All(Vec<Self>),
    OneOf(Vec<Self>),
}

/// The number of parentheses that may be open.
const MAX_DEPTH: usize = 64;

/// The column of an error, counted in characters from 1, and the error.
pub(super) type Located = (usize, String);

const MISSING: &str = "a name, `+set` or `(` is missing here";

pub(super) fn parse(text: &str) -> Result<Expression, Located> {
    let mut parser = Parser {
        chars: text.chars().collect(),
        at: 0,
        depth: 0,
    };
    let expression = parser.one_of()?;
    match parser.next() {
        None => Ok(expression),
        Some(')') => Err((parser.column(), "this `)` closes nothing".to_owned())),
        Some(stray) => Err((parser.column(), unexpected(stray))),
    }
}

/// Returns `true` if a name can be used in an expression.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_of_name)
}

fn is_of_name(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '-' | '_' | '.')
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    /// The number of parentheses that are open here.
    depth: usize,
}

impl Parser {
    /// Returns the next character after white space, without passing it.
    fn next(&mut self) -> Option<char> {
        while self
            .chars
            .get(self.at)
            .is_some_and(|char| char.is_whitespace())
        {
            self.at += 1;
        }
        self.chars.get(self.at).copied()
    }

    fn column(&self) -> usize {
        self.at + 1
    }

    /// Passes the next character and returns `true`, if it is this one.
    fn passes(&mut self, char: char) -> bool {
        let is_next = self.next() == Some(char);
        self.at += usize::from(is_next);
        is_next
    }

    fn one_of(&mut self) -> Result<Expression, Located> {
        let mut all = vec![self.all()?];
        while self.passes('|') {
            all.push(self.all()?);
        }
        Ok(one_or(all, Expression::OneOf))
    }

    fn all(&mut self) -> Result<Expression, Located> {
        let mut all = vec![self.atom()?];
        while self.passes('&') {
            all.push(self.atom()?);
        }
        Ok(one_or(all, Expression::All))
    }

    fn atom(&mut self) -> Result<Expression, Located> {
        let next = self.next();
        let column = self.column();
        match next {
            Some('(') => self.in_parentheses(column),
            Some('+') => {
                self.at += 1;
                // Without white space between, because `+ set` is more likely a mistake.
                let name = self.name();
                match name.is_empty() {
                    true => Err((self.column(), MISSING.to_owned())),
                    false => Ok(Expression::Set { name, column }),
                }
            }
            Some(char) if is_of_name(char) => {
                let name = self.name();
                Ok(Expression::Name { name, column })
            }
            None | Some('&' | '|' | ')') => Err((column, MISSING.to_owned())),
            Some(stray) => Err((column, unexpected(stray))),
        }
    }

    fn in_parentheses(&mut self, column: usize) -> Result<Expression, Located> {
        // Bounds the recursion, however deep the text is.
        if self.depth == MAX_DEPTH {
            return Err((
                column,
                format!("more than {MAX_DEPTH} parentheses are open here"),
            ));
        }
        self.depth += 1;
        self.at += 1;
        let inner = self.one_of()?;
        self.depth -= 1;
        match self.next() {
            Some(')') => {
                self.at += 1;
                Ok(inner)
            }
            None => Err((column, "this `(` is not closed".to_owned())),
            Some(stray) => Err((self.column(), unexpected(stray))),
        }
    }

    fn name(&mut self) -> String {
        let rest = self.chars[self.at..].iter();
        let name: String = rest.copied().take_while(|&char| is_of_name(char)).collect();
        self.at += name.chars().count();
        name
    }
}

/// Returns the error of a name that stands for no model.
pub(super) fn unknown_name(name: &str) -> String {
    format!("`{name}` is neither in `vars` nor a model")
}

fn unexpected(char: char) -> String {
    format!("`{char}` is not expected here: there may be names, `+set`, `&`, `|` and parentheses")
}

fn one_or(mut all: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    match all.len() {
        1 => all.remove(0),
        _ => many(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes an expression with parentheses around each part.
    fn written(expression: &Expression) -> String {
        let join = |all: &[Expression], by: &str| {
            let all: Vec<_> = all.iter().map(written).collect();
            format!("({})", all.join(by))
        };
        match expression {
            Expression::Name { name, .. } => name.clone(),
            Expression::Set { name, .. } => format!("+{name}"),
            Expression::All(all) => join(all, "&"),
            Expression::OneOf(all) => join(all, "|"),
        }
    }

    #[test]
    fn and_binds_tighter_than_or() {
        for (text, expected) in [
            ("a", "a"),
            (" a & b|c ", "((a&b)|c)"),
            ("a&(b|c)&+x", "(a&(b|c)&+x)"),
            ("((a))", "a"),
            ("qwen-2.5_7b | é", "(qwen-2.5_7b|é)"),
        ] {
            assert_eq!(written(&parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        let stray = |char: char| format!("`{char}` is not expected here: ");
        let [missing, not_closed, not_opened, too_deep] = [
            "a name, `+set` or `(` is missing here",
            "this `(` is not closed",
            "this `)` closes nothing",
            "more than 64 parentheses are open here",
        ];
        for (text, column, error) in [
            ("", 1, missing),
            ("a &", 4, missing),
            ("a | | b", 5, missing),
            ("a & (b | c", 5, not_closed),
            ("a)", 2, not_opened),
            ("()", 2, missing),
            ("a b", 3, &stray('b')),
            ("a , b", 3, &stray(',')),
            ("(a b)", 4, &stray('b')),
            ("a & + x", 6, missing),
            ("a/b", 2, &stray('/')),
        ] {
            let (at, found) = parse(text).unwrap_err();
            assert!(at == column && found.starts_with(error), "{text}: {found}");
        }
        let deep = "(".repeat(100_000);
        assert_eq!(parse(&deep), Err((65, too_deep.to_owned())));
    }
}
