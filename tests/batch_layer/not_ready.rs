//! Batches go only when the inner service is ready.

use super::*;

#[tokio::test(start_paused = true)]
async fn who_comes_until_then_may_join() {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let service = service(&engine, 3, millis(5));
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, job(number)).await);
    }
    advance(millis(100)).await;
    for number in 4..6 {
        sent.push(send(&service, job(number).urgent()).await);
    }
    assert!(engine.batches().is_empty());
    engine.is(Mood::Ready);
    settle().await;
    assert_eq!(engine.went(), [(100, vec![4, 5, 0]), (100, vec![1, 2, 3])]);
    for (number, sent) in (0..6).zip(sent) {
        assert_eq!(answer(sent).await, 2 * number);
    }
}

#[tokio::test(start_paused = true)]
async fn the_rest_waits_for_a_batch_of_its_own() {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let service = service(&engine, 3, millis(50));
    advance(millis(10)).await;
    for number in 0..3 {
        drop(send(&service, job(number)).await);
    }
    advance(millis(30)).await;
    let rest = send(&service, job(3)).await;
    engine.is(Mood::Ready);
    assert_eq!(answer(rest).await, 6);
    assert_eq!(engine.went(), [(40, vec![0, 1, 2]), (90, vec![3])]);
}

#[tokio::test(start_paused = true)]
async fn if_those_who_made_it_due_have_left_the_others_wait_on() {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let service = service(&engine, 8, millis(50));
    let first = send(&service, job(0)).await;
    advance(millis(60)).await;
    let second = send(&service, job(1)).await;
    first.abort();
    settle().await;
    engine.is(Mood::Ready);
    assert_eq!(answer(second).await, 2);
    assert_eq!(engine.went(), [(110, vec![1])]);
}

#[tokio::test(start_paused = true)]
async fn if_everyone_has_left_nothing_goes_and_the_next_are_served() {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let service = service(&engine, 1, millis(5));
    let gone = send(&service, job(0)).await;
    gone.abort();
    settle().await;
    engine.is(Mood::Ready);
    settle().await;
    assert!(engine.batches().is_empty());
    assert_eq!(answer(send(&service, job(1)).await).await, 2);
    assert_eq!(engine.batches(), [[1]]);
}

#[tokio::test(start_paused = true)]
async fn if_it_never_is_again_everyone_learns_why() {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let mut service = layer(2, millis(5)).room(room(3)).layer(engine.service());
    let mut waiting = Vec::new();
    for number in 0..3 {
        waiting.push(send(&service, job(number)).await);
    }
    let standing = send(&service, job(3)).await;
    engine.is(Mood::Broken);
    waiting.push(standing);
    for waiting in waiting {
        assert_broken(waiting.await.unwrap());
    }
    assert!(!engine.is_alive());
    let ready = service.ready().await.map(|_| 0);
    assert_broken(ready);
    let later = tower::Service::call(&mut service, job(4)).await;
    assert_broken(later);
}

#[tokio::test(start_paused = true)]
async fn if_it_never_is_again_batches_that_have_gone_are_still_answered() {
    let engine = Engine::by_hand();
    let service = service(&engine, 1, millis(5));
    let gone = send(&service, job(0)).await;
    engine.is(Mood::Broken);
    assert_broken(send(&service, job(1)).await.await.unwrap());
    engine.finish();
    assert_eq!(answer(gone).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_chair_that_was_reserved_before_it_broke_is_of_no_use() {
    let engine = Engine::new();
    let service = service(&engine, 1, millis(5));
    let mut ready = service.clone();
    ready.ready().await.unwrap();
    engine.is(Mood::Broken);
    assert_broken(send(&service, job(0)).await.await.unwrap());
    assert_broken(tower::Service::call(&mut ready, job(1)).await);
    assert_broken(ready.ready().await.map(|_| 0));
}

fn assert_broken(answer: Result<u32, Error>) {
    match answer {
        Err(BatchError::Inner(why)) => assert_eq!(*why, "broken"),
        other => panic!("{other:?}"),
    }
}
