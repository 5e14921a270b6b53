use super::*;

#[tokio::test]
async fn can_be_reached_and_taken_out() {
    let (mut queue, _) = queue(QueueConfig::new(1), limited(&Ward::new(), 7));
    let _: &ConcurrencyLimit<Ward> = queue.get_ref();
    let ward = Ward::new();
    *queue.get_mut() = limited(&ward, 1);
    ward.finish(1);
    assert_eq!(queue.clone().oneshot(normal("served")).await, Ok("served"));
    assert_eq!(ward.came(), ["served"]);

    ward.finish(1);
    let inner: ConcurrencyLimit<Ward> = queue.into_inner();
    assert_eq!(inner.oneshot(normal("direct")).await, Ok("direct"));
}

#[cfg(feature = "load")]
#[tokio::test(start_paused = true)]
async fn with_a_queue_has_a_load_for_balancers() {
    use tower::load::Load;

    let ward = Ward::new();
    let (queue, _) = queue(QueueConfig::new(1), ward.clone());
    let first = send(&queue, normal("first")).await;
    let second = send(&queue, normal("second")).await;
    assert_eq!(queue.load(), 2, "one runs, one waits");
    ward.finish(2);
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(queue.load(), 0);
}
