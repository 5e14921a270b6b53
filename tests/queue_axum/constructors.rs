//! The panics of constructors that get an invalid configuration.

use std::cell::Cell;
use std::panic::catch_unwind;

use super::*;

fn nameless() -> QueueConfig {
    QueueConfig::new(1).priority_header("")
}

#[test]
fn constructors_panic_with_the_field() {
    let message = |make: fn() -> QueueHandle| {
        let panic = catch_unwind(make).unwrap_err();
        *panic.downcast::<String>().unwrap()
    };
    for make in [
        || QueueLayer::new(nameless()).handle(),
        || QueueLayer::until_headers(nameless()).handle(),
        || QueueLayer::plain(nameless()).handle(),
    ] {
        assert!(message(make).contains("`priority_header` is"));
    }
    assert!(QueueLayer::try_new(nameless()).is_err());
    assert!(QueueLayer::try_plain(nameless()).is_err());
}

thread_local! {
    /// The file and line of the last panic of this thread.
    static PANICKED_AT: Cell<Option<(String, u32)>> = const { Cell::new(None) };
}

#[test]
fn constructors_panic_where_they_are_called() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let at = info.location().map(|at| (at.file().to_owned(), at.line()));
        PANICKED_AT.set(at);
        hook(info);
    }));
    let makes: [(u32, fn() -> QueueHandle); 3] = [
        (line!(), || QueueLayer::new(nameless()).handle()),
        (line!(), || QueueLayer::until_headers(nameless()).handle()),
        (line!(), || QueueLayer::plain(nameless()).handle()),
    ];
    for (line, make) in makes {
        assert!(catch_unwind(make).is_err());
        let (file, at) = PANICKED_AT.take().unwrap();
        assert!(file.ends_with("constructors.rs"), "{file}");
        assert_eq!(at, line);
    }
}
