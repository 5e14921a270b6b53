//! Answers on their way to the callers of one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

/// The callers that wait, by the numbers of their requests.
#[derive(Clone, Default)]
pub(crate) struct Replies(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    last: u64,
    callers: HashMap<u64, oneshot::Sender<()>>,
}

impl Replies {
    /// Returns the number of a new request, and where its answer comes.
    pub(crate) fn expect(&self) -> (u64, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut replies = self.0.lock().unwrap();
        replies.last += 1;
        let number = replies.last;
        replies.callers.insert(number, sender);
        (number, receiver)
    }

    /// Answers a caller, if it waits for that.
    pub(crate) fn answer(&self, number: u64) {
        let caller = self.0.lock().unwrap().callers.remove(&number);
        if let Some(caller) = caller {
            let _ = caller.send(());
        }
    }
}
