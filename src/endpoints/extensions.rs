//! Values that other modules keep with an endpoint, each found by its type.

use std::any::Any;
use std::fmt;
use std::sync::OnceLock;

/// A list of values of different types. Each value is made at its first use, and is read without a lock.
#[derive(Default)]
pub(super) struct Extensions(OnceLock<Box<Node>>);

struct Node {
    value: Box<dyn Any + Send + Sync>,
    next: Extensions,
}

impl Extensions {
    /// Returns the value of type `T`. The first call makes it by `make`.
    pub(super) fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let mut make = Some(make);
        let mut list = self;
        loop {
            let node = list.0.get_or_init(|| {
                // The closure runs at most once, because the node that it makes has the right type and ends the loop.
                let make = make.take().unwrap_or_else(|| unreachable!("made once"));
                Box::new(Node {
                    value: Box::new(make()),
                    next: Self::default(),
                })
            });
            match node.value.downcast_ref() {
                Some(value) => return value,
                None => list = &node.next,
            }
        }
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn each_type_has_one_value() {
        let extensions = Extensions::default();
        assert_eq!(*extensions.get_or_init(|| 1_u8), 1);
        assert_eq!(*extensions.get_or_init(|| "a"), "a");
        assert_eq!(*extensions.get_or_init(|| 2_u8), 1);
        assert_eq!(*extensions.get_or_init(|| "b"), "a");
    }

    #[test]
    fn threads_that_make_a_value_at_once_agree() {
        let extensions = &Extensions::default();
        thread::scope(|scope| {
            let tasks = [1_u32, 2, 3].map(|n| {
                scope.spawn(move || {
                    extensions.get_or_init(|| u64::from(n));
                    *extensions.get_or_init(|| n)
                })
            });
            let seen = tasks.map(|task| task.join().unwrap());
            assert!(seen.iter().all(|&n| n == seen[0]), "{seen:?}");
        });
    }
}
