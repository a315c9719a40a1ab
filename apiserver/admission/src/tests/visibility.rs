//! What plugins get to see of a write.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use async_trait::async_trait;
use stoa_meta::{definition::Target, object::Object, status::ApiError};
use stoa_registry::admission::{AdmissionPlugin, Attributes, Operation, Reinvocation};

use super::support::{Configured, Server, gadget};

/// Has a say in updates, and is content with the request.
#[derive(Debug)]
struct Guard;

impl AdmissionPlugin for Guard {
    fn name(&self) -> &'static str {
        "Guard"
    }

    fn admits(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update
    }

    fn reads_object(&self) -> bool {
        false
    }
}

/// Is configured while the first update is under way: once it said that it has no say in that.
#[derive(Debug, Default)]
struct Late {
    looked: AtomicUsize,
    asked: AtomicUsize,
}

#[async_trait]
impl AdmissionPlugin for Late {
    fn name(&self) -> &'static str {
        "Late"
    }

    fn admits(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && self.looked.fetch_add(1, SeqCst) > 0
    }

    async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&mut Object>,
        _: &mut Reinvocation,
    ) -> Result<(), ApiError> {
        assert!(object.is_some() && attributes.old_object.is_some(), "it is there");
        self.asked.fetch_add(1, SeqCst);
        Ok(())
    }
}

#[tokio::test]
async fn newly_configured_plugin_skips_undisclosed_object() {
    let late = Arc::new(Late::default());
    let plugins: Vec<Arc<dyn AdmissionPlugin>> = vec![Arc::new(Guard), late.clone()];
    let server = Server::new(Configured { plugins, ..Configured::default() }).await;
    server.create("shop", "a", 1).await.unwrap();
    for asked in [0, 1] {
        server.update(Target::Main, gadget("a", 2 + asked)).await.unwrap();
        assert_eq!(late.asked.load(SeqCst), usize::try_from(asked).unwrap());
    }
}
