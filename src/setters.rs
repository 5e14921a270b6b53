//! The methods of a configuration that set its fields.

/// Defines a method for each of these fields, which takes the field's value and returns the configuration.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )*};
}

pub(crate) use setters;
