//! The pages about stored requests.

use std::time::Duration;

use super::support::{World, a_while, get, post, post_to};

#[tokio::test(start_paused = true)]
async fn a_queued_request_says_its_place() {
    let world = World::new(1);
    world.work();
    let runs = world.store(post("runs")).await;
    world.until_status(&runs, "processing").await;
    let (_, last) = (world.store(post("a")).await, world.store(post("b")).await);
    let object = world.show(&last).await;
    assert_eq!(object["position"], 2);
    assert!(object.get("estimate_seconds").is_none()); // nothing is known yet
    let running = world.show(&runs).await;
    assert_eq!(running["attempts"], 1);
    assert!(running["started_at"].as_u64() >= running["created_at"].as_u64());
    assert!(running.get("position").is_none() && running.get("reason").is_none());

    tokio::time::sleep(Duration::from_secs(10)).await;
    world.backend.finish(1);
    world.until_status(&runs, "succeeded").await;
    let reply = world.send(get(&format!("/requests/{last}"))).await;
    assert_eq!(reply.json()["position"], 1);
    let estimate = reply.json()["estimate_seconds"].as_u64().unwrap();
    assert!((10..=11).contains(&estimate), "{estimate}");
    assert_eq!(reply.header("retry-after"), estimate.to_string());
    assert!(world.show(&runs).await["ended_at"].is_u64());
}

#[tokio::test(start_paused = true)]
async fn a_page_waits_for_the_end_if_asked() {
    let world = World::new(1);
    world.work();
    let id = world.store(post("a")).await;
    let path = |wait: &str| format!("/requests/{id}?wait={wait}");
    let before = tokio::time::Instant::now();
    let reply = world.send(get(&path("3"))).await;
    assert_eq!(
        (reply.json()["status"].as_str(), before.elapsed().as_secs()),
        (Some("processing"), 3)
    );
    let waiting = world.spawn(get(&path("60")));
    a_while().await;
    world.backend.finish(1);
    let reply = waiting.await.unwrap();
    assert_eq!(reply.json()["status"], "succeeded");
    assert!(!reply.headers.contains_key("retry-after"));
    for wait in ["soon", "-1", "1.5", ""] {
        let reply = world.send(get(&path(wait))).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (400, "invalid_wait"),
            "{wait}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_there_at_the_end() {
    let world = World::new(1);
    let id = world.store(post("a").body("text")).await;
    let path = format!("/requests/{id}/response");
    let early = world.send(get(&path)).await;
    assert_eq!(
        (early.status.as_u16(), early.code().as_str()),
        (409, "request_not_finished")
    );
    world.work();
    world.backend.finish(1);
    world.until_status(&id, "succeeded").await;
    for _ in 0..2 {
        let reply = world.send(get(&path)).await;
        assert_eq!((reply.status.as_u16(), reply.text()), (200, "text"));
        assert_eq!(reply.header("x-backend"), "yes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_seen_by_its_tenant_alone() {
    let world = World::new(1);
    let id = world.store(post("a").header("x-tenant-id", "t")).await;
    for page in ["", "/response", "/stream"] {
        let path = format!("/requests/{id}{page}");
        let foreign = world.send(get(&path).header("x-tenant-id", "u")).await;
        assert_eq!(
            (foreign.status.as_u16(), foreign.code().as_str()),
            (404, "request_not_found")
        );
        assert_eq!(world.send(get(&path)).await.status, 404);
    }
    let cancel = post_to(&format!("/requests/{id}/cancel"), "");
    assert_eq!(
        world.send(cancel.header("x-tenant-id", "u")).await.status,
        404
    );
    let path = format!("/requests/{id}");
    let own = world.send(get(&path).header("x-tenant-id", "t")).await;
    assert_eq!(own.json()["status"], "queued");
    assert_eq!(world.admin(get(&path)).await.unwrap().json()["tenant"], "t");
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_and_methods_are_refused() {
    let world = World::new(1);
    let id = world.store(post("a")).await;
    let unknown = "0".repeat(32);
    for path in [
        format!("/requests/{unknown}"),
        "/requests/1".into(),
        format!("/requests/{id}/x"),
    ] {
        assert_eq!(
            world.send(get(&path)).await.code(),
            "request_not_found",
            "{path}"
        );
    }
    let reply = world.send(get(&format!("/requests/{id}/cancel"))).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("allow")),
        (405, "POST")
    );
    let reply = world.send(post_to(&format!("/requests/{id}"), "")).await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("allow")),
        (405, "GET, HEAD")
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_has_pages_of_the_newest_first() {
    let world = World::new(1);
    let mut ids = Vec::new();
    for tenant in ["t", "t", "u", "t"] {
        ids.push(world.store(post("a").header("x-tenant-id", tenant)).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let list = async |query: &str| {
        let asked = get(&format!("/requests{query}")).header("x-tenant-id", "t");
        world.send(asked).await.json()
    };
    let found = |list: &serde_json::Value| -> Vec<String> {
        let data = list["data"].as_array().unwrap().iter();
        data.map(|object| object["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = list("").await;
    assert_eq!(all["object"], "list");
    assert_eq!(found(&all), [&*ids[3], &ids[1], &ids[0]]);
    assert_eq!(
        (all["first_id"].as_str(), all["last_id"].as_str()),
        (Some(&*ids[3]), Some(&*ids[0]))
    );
    assert_eq!(all["has_more"], false);
    let first = list("?limit=1").await;
    assert_eq!(
        (found(&first), first["has_more"].as_bool()),
        (vec![ids[3].clone()], Some(true))
    );
    let next = list(&format!("?limit=2&after={}", ids[3])).await;
    assert_eq!(
        (found(&next), next["has_more"].as_bool()),
        (ids[..2].iter().rev().cloned().collect(), Some(false))
    );
    assert!(found(&list("?status=succeeded").await).is_empty());
    assert_eq!(found(&list("?status=queued").await).len(), 3);
    assert!(found(&list("?tenant=u").await).is_empty());
    for (query, code) in [
        ("?limit=0", "invalid_limit"),
        ("?limit=101", "invalid_limit"),
        ("?status=done", "invalid_status"),
        ("?after=1", "invalid_after"),
    ] {
        assert_eq!(list(query).await["error"]["code"], code);
    }
    let operator = world.admin(get("/requests")).await.unwrap().json();
    assert_eq!(found(&operator).len(), 4);
    let of_one = world.admin(get("/requests?tenant=u")).await.unwrap().json();
    assert_eq!(found(&of_one), [&*ids[2]]);
}
