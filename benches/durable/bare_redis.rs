//! The least that a queue over Redis does: push, a blocking pop, and a reply. A crash loses what was popped.

use bytes::Bytes;
use redis::{Client, cmd};

use crate::Subject;
use crate::replies::Replies;

pub(crate) async fn subject(name: &'static str, url: &str) -> Subject {
    let client = Client::open(url).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connect = || client.get_multiplexed_async_connection_with_config(&config);
    let (pushes, mut pops) = (connect().await.unwrap(), connect().await.unwrap());
    let (answers, mut answered) = (connect().await.unwrap(), connect().await.unwrap());
    tokio::spawn(async move {
        loop {
            let pop = cmd("BLPOP").arg("bare").arg(0).take();
            let popped = pop.query_async::<(String, Vec<u8>)>(&mut pops).await;
            let Ok((_, item)) = popped else {
                return; // Redis is gone: the bench ends
            };
            let mut answers = answers.clone();
            tokio::spawn(async move {
                let push = cmd("RPUSH").arg("bare:replies").arg(item).take();
                let _ = push.query_async::<()>(&mut answers).await;
            });
        }
    });
    let replies = Replies::default();
    let waiting = replies.clone();
    tokio::spawn(async move {
        loop {
            let pop = cmd("BLPOP").arg("bare:replies").arg(0).take();
            let popped = pop.query_async::<(String, Vec<u8>)>(&mut answered).await;
            let Ok((_, item)) = popped else {
                return;
            };
            waiting.answer(u64::from_le_bytes(item[..8].try_into().unwrap()));
        }
    });
    Subject::new(name, move |body: Bytes| {
        let (mut pushes, replies) = (pushes.clone(), replies.clone());
        async move {
            let (number, answer) = replies.expect();
            let item = [&number.to_le_bytes(), &*body].concat();
            let push = cmd("RPUSH").arg("bare").arg(item).take();
            let _: () = push.query_async(&mut pushes).await.unwrap();
            answer.await.unwrap();
        }
    })
}
