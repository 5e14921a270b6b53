//! The scripts, one for each transition, each after the shared parts that it needs. Redis sets a script up anew at each
//! run, so each one includes only its own parts. The scripts that most requests run serve several requests in one call.

use std::sync::LazyLock;

use redis::Script;

macro_rules! scripts {
    ($($name:ident = $file:literal $(+ $part:literal)*;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                include_str!("scripts/part_base.lua"),
                $(include_str!(concat!("scripts/part_", $part, ".lua")),)*
                "local function run()\n",
                include_str!(concat!("scripts/", $file, ".lua")),
                "\nend\nlocal result = run()\nsave()\nreturn result\nend\nreturn script()\n",
            ))
        });)*
    };
}

scripts! {
    APPEND = "append" + "queue" + "end";
    BACKLOG = "backlog" + "queue" + "end" + "order";
    CALLED = "called";
    CANCEL = "cancel" + "queue" + "end";
    CHUNKS = "chunks";
    CORDON = "cordon" + "queue" + "end" + "order";
    DEPTHS = "depths" + "queue" + "end" + "order";
    DUE_WEBHOOKS = "due_webhooks";
    ENQUEUE = "enqueue" + "queue";
    FETCH = "fetch" + "queue" + "end" + "order";
    FINISH = "finish" + "queue" + "end";
    GIVE_BACK = "give_back" + "queue" + "end";
    KNOWN = "known";
    LIST = "list";
    LOOK = "look" + "queue";
    PAUSE = "pause" + "queue";
    PAUSES = "pauses" + "queue" + "end" + "order";
    POSITION = "position" + "queue";
    PROBE = "probe";
    PRUNE = "prune";
    PRUNE_CONSUMERS = "prune_consumers";
    PUT = "put";
    REMOVE = "remove";
    RENEW = "renew" + "queue";
    RESPONSE_PART = "response_part";
    RESUME = "resume" + "queue" + "end" + "order";
    RETRY = "retry" + "queue" + "end";
    SETTLE_WEBHOOK = "settle_webhook";
    SWEEP = "sweep" + "queue" + "end";
    VALUES = "values";
    WATCH = "watch";
}
