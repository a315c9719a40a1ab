//! What registries count.

use prometheus::{IntGauge, IntGaugeVec, Opts};

use crate::definition::ResourceDefinition;

/// The metrics of a server's registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    undecodable: IntGaugeVec,
}

impl Metrics {
    /// Makes the metrics and registers them.
    ///
    /// # Errors
    ///
    /// When `registry` has metrics of the same names already.
    pub fn new(registry: &prometheus::Registry) -> prometheus::Result<Self> {
        let metrics = Self::default();
        registry.register(Box::new(metrics.undecodable.clone()))?;
        Ok(metrics)
    }

    /// How much of what is stored of a resource does not decode.
    pub(super) fn undecodable(&self, definition: &ResourceDefinition) -> IntGauge {
        self.undecodable.with_label_values(&[&definition.group, &definition.plural])
    }
}

/// Metrics that nobody reads.
impl Default for Metrics {
    fn default() -> Self {
        let opts = Opts::new(
            "stoa_undecodable_objects",
            "Number of stored objects that do not decode, of which their names tell an error and lists nothing.",
        );
        let undecodable = IntGaugeVec::new(opts, &["group", "resource"]).expect("the names are valid");
        Self { undecodable }
    }
}
