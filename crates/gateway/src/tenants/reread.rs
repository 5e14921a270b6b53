//! Files of keys, which are read again while the gateway runs.

use crate::config::{TenantConfig, conflict};

/// The tenants with the keys that their files have now.
pub(crate) struct Reread {
    pub(crate) tenants: Vec<TenantConfig>,
    /// The problems of files, one line each. Their tenants keep the keys that they have.
    pub(crate) problems: Vec<String>,
}

/// Reads the files of keys. Blocks the thread, for 5 s at most for each file whose disk begins to hang.
pub(crate) fn reread(tenants: &[TenantConfig]) -> Reread {
    let mut now = tenants.to_vec();
    let mut problems = Vec::new();
    for tenant in &mut now {
        match tenant.keys.reread() {
            None => {}
            Some(Ok(keys)) => tenant.keys = keys,
            Some(Err(problem)) => problems.push(format!("tenant {:?}: {problem}", tenant.name)),
        }
    }
    if let Some((_, conflict)) = conflict(&now) {
        problems.push(conflict.to_string());
        now = tenants.to_vec();
    }
    Reread {
        tenants: now,
        problems,
    }
}
