//! Bounds that a trait implies for another type than the one that implements it.

/// A bound on `T` that holds wherever a trait with this supertrait holds: `trait Request<T>: Implies<T, Is: Bound>`.
///
/// The compiler takes the supertraits of a trait for granted, but not its `where` clauses on other types. Because `Is`
/// is `T`, this trait turns such a clause into a supertrait.
///
/// Services state the bounds on their inner services in this form, as part of a bound on the request, to get better
/// messages from the compiler. At `service.call(request)` the compiler looks for methods before it knows the request's
/// type. If a bound on the inner service fails at that point, the message says that the method does not exist and
/// leaves out the bound's advice. A bound on a type that is not yet known is checked later, and its advice is shown.
pub trait Implies<T>: Alias<T, Is = T> {}

/// A trait that names `T` as an associated type.
pub trait Alias<T> {
    /// The type `T` itself.
    type Is;
}

impl<T, U> Implies<T> for U {}

impl<T, U> Alias<T> for U {
    type Is = T;
}
