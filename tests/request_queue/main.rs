//! The waiting room from the pull side, as a batch scheduler meets it.

mod basics;
