//! Values under keys.

use crate::StoreConfig;
use bytes::Bytes;

use super::*;

/// Values are kept under their keys.
pub async fn values_are_kept_under_their_keys<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    assert_eq!(store.value("file/a").await.unwrap(), None);
    assert!(!store.remove("file/a").await.unwrap());
    let all_bytes: Vec<u8> = (0..=255).collect();
    store.put("file/a", all_bytes.clone().into()).await.unwrap();
    assert_eq!(store.value("file/a").await.unwrap().unwrap(), all_bytes);
    store.put("file/a", Bytes::new()).await.unwrap();
    assert_eq!(store.value("file/a").await.unwrap(), Some(Bytes::new()));
    assert!(store.remove("file/a").await.unwrap());
    assert!(!store.remove("file/a").await.unwrap());
    assert_eq!(store.value("file/a").await.unwrap(), None);
}

/// Values are read in pages.
pub async fn values_are_read_in_pages<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for key in ["b/2", "a/9", "b/10", "b", "b/1", "b/é", "c/1"] {
        store.put(key, key.to_owned().into()).await.unwrap();
    }
    let keys = async |prefix, after, max| {
        let values = store.values(prefix, after, max).await.unwrap();
        for (key, value) in &values {
            assert_eq!(value, key);
        }
        let keys: Vec<_> = values.into_iter().map(|(key, _)| key).collect();
        keys.join(" ")
    };
    assert_eq!(keys("b/", None, 10).await, "b/1 b/10 b/2 b/é");
    assert_eq!(keys("b/", None, 2).await, "b/1 b/10");
    assert_eq!(keys("b/", Some("b/10"), 2).await, "b/2 b/é");
    assert_eq!(keys("b/", Some("b/é"), 2).await, "");
    assert_eq!(
        keys("b/", Some("b/11"), 1).await,
        "b/2",
        "it need not be there"
    );
    assert_eq!(keys("b/", Some("a/9"), 1).await, "b/1");
    assert_eq!(keys("b/", Some("c/1"), 1).await, "");
    assert_eq!(keys("", None, 10).await, "a/9 b b/1 b/10 b/2 b/é c/1");
    assert_eq!(keys("b/", None, 0).await, "");
    assert_eq!(keys("x", None, 10).await, "");
}
