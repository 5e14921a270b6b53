//! The methods of a configuration that set its fields.

/// Defines a method for each of these fields, which takes the field's value and returns the configuration. Its
/// documentation links to that of the field, and has the lines that are given here.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)+) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )+};
}

pub(crate) use setters;
