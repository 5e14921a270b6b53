//! `apalis` on Redis: a job is pushed, a worker takes up to 64 at a time and runs them, and their results are stored.
//!
//! A caller waits for its result in two ways: with `wait_for_single`, as from any process, which asks every 100 ms; or it is
//! told by the job within this process, at no cost to `apalis`, before the result is stored. The worker hears of a job within
//! this process, too: over pub/sub it may miss a message, and then it rests for 30 s.

use std::sync::Arc;
use std::task::{Context, Poll};

use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage, connect};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::task::AtomicWaker;

use crate::replies::Replies;
use crate::{CLIENTS, Subject};

/// Wakes the worker when a job was pushed.
#[derive(Clone, Default)]
struct Pushes(Arc<AtomicWaker>);

impl PollStrategy for Pushes {
    fn poll_drive(&mut self, cx: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        self.0.register(cx.waker());
        Poll::Pending
    }
}

/// The two subjects: told within the process, and told by Redis.
pub(crate) async fn subjects(names: [&'static str; 2], url: &str) -> [Subject; 2] {
    let config = Config::default().queue("apalis").batch_size(CLIENTS);
    let storage = RedisStorage::new(connect(url).await.unwrap()).with_config(config);
    let (replies, pushes) = (Replies::default(), Pushes::default());
    let waiting = replies.clone();
    let job = move |(number, body): (u64, String)| {
        waiting.answer(number);
        async move { Ok::<_, BoxDynError>(body) }
    };
    let worker = WorkerBuilder::new("bench")
        .backend(PollWith::new(storage.clone(), pushes.clone()))
        .parallelize(tokio::spawn)
        .build(job);
    tokio::spawn(worker.run());
    names.map(|name| {
        let (storage, replies, pushes) = (storage.clone(), replies.clone(), pushes.clone());
        let waits = name == names[1];
        Subject::new(name, move |body: Bytes| {
            let (mut storage, replies, pushes) = (storage.clone(), replies.clone(), pushes.clone());
            async move {
                let (number, answer) = replies.expect();
                let body = String::from_utf8(body.into()).unwrap();
                let id: TaskId = format!("{number:026}").parse().unwrap();
                let task = TaskBuilder::new((number, body)).task_id(id.clone());
                storage.push_task(task.build()).await.unwrap();
                pushes.0.wake();
                if !waits {
                    answer.await.unwrap();
                } else {
                    let mut results = storage.wait_for_single(id);
                    let result: TaskResult<String> = results.next().await.unwrap().unwrap();
                    assert!(result.result().is_ok());
                }
            }
        })
    })
}
