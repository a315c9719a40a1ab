//! The rule: which tenant may hold how many permits.

use std::collections::HashMap;
use std::sync::Arc;

/// A tenant with slow calls holds at most this part of the permits.
const THROTTLED_PART: usize = 4;

/// The largest share of the permits that one tenant may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxShare {
    /// The rule for every resource: a tenant that holds permits leaves as many free as it holds, up to a quarter of all.
    ///
    /// A tenant that holds nothing gets what is free. Of 64 permits the first tenant may hold 48, the next 8, then 4, 2, 1 and 1.
    ThreeQuarters,
    /// No bound, for permits that a caller asks for only with a permit of another semaphore, which applies the rule.
    All,
}

/// Who holds how many permits.
///
/// The tenant without a name stands for callers of earlier versions, which name none. The rule does not bound it, and it has its
/// turns as a tenant that holds nothing.
#[derive(Debug)]
pub(crate) struct Holdings {
    permits: usize,
    max_share: MaxShare,
    held: usize,
    /// Of tenants that hold any.
    by_tenant: HashMap<Arc<str>, usize>,
    /// Throttles by tenant; never 0.
    throttles: HashMap<Arc<str>, usize>,
}

impl Holdings {
    pub(crate) fn new(permits: usize, max_share: MaxShare) -> Self {
        Self { permits, max_share, held: 0, by_tenant: HashMap::new(), throttles: HashMap::new() }
    }

    pub(crate) fn permits(&self) -> usize {
        self.permits
    }

    pub(crate) fn available(&self) -> usize {
        self.permits - self.held
    }

    pub(crate) fn held_by(&self, tenant: &str) -> usize {
        self.by_tenant.get(tenant).copied().unwrap_or_default()
    }

    /// How many permits count when those come first that hold least.
    pub(crate) fn rank(&self, tenant: &str) -> usize {
        if tenant.is_empty() { 0 } else { self.held_by(tenant) }
    }

    /// Whether slow calls keep a tenant from so many more permits, however many are free.
    pub(crate) fn is_throttled(&self, tenant: &str, weight: usize) -> bool {
        let most = (self.permits / THROTTLED_PART).max(1);
        self.throttles.contains_key(tenant) && self.held_by(tenant).saturating_add(weight) > most
    }

    /// Whether a tenant may hold so many more permits now.
    pub(crate) fn allows(&self, tenant: &str, weight: usize) -> bool {
        let Some(left) = self.available().checked_sub(weight) else { return false };
        if self.is_throttled(tenant, weight) {
            return false;
        }
        let held = self.held_by(tenant);
        let is_bounded = self.max_share == MaxShare::ThreeQuarters && held > 0 && !tenant.is_empty();
        // Many permits at once obey the rule that they would obey one by one.
        !is_bounded || left >= (held + weight - 1).min(self.permits.div_ceil(4))
    }

    pub(crate) fn add(&mut self, tenant: &Arc<str>, weight: usize) {
        self.held += weight;
        *self.by_tenant.entry(Arc::clone(tenant)).or_default() += weight;
    }

    pub(crate) fn remove(&mut self, tenant: &Arc<str>, weight: usize) {
        self.held -= weight;
        take_away(&mut self.by_tenant, tenant, weight);
    }

    pub(crate) fn throttle(&mut self, tenant: &Arc<str>) {
        *self.throttles.entry(Arc::clone(tenant)).or_default() += 1;
    }

    pub(crate) fn unthrottle(&mut self, tenant: &Arc<str>) {
        take_away(&mut self.throttles, tenant, 1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0 && self.by_tenant.is_empty() && self.throttles.is_empty()
    }
}

fn take_away(counts: &mut HashMap<Arc<str>, usize>, tenant: &Arc<str>, count: usize) {
    if let Some(own) = counts.get_mut(tenant) {
        *own -= count;
        if *own == 0 {
            counts.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many permits a tenant gets that takes them one by one.
    fn take_all(holdings: &mut Holdings, tenant: &str) -> usize {
        let tenant: Arc<str> = tenant.into();
        let mut count = 0;
        while holdings.allows(&tenant, 1) {
            holdings.add(&tenant, 1);
            count += 1;
        }
        count
    }

    /// How many permits each tenant gets, of tenants that come one after the other and take all they may.
    fn take_in_turn(permits: usize, max_share: MaxShare) -> Vec<usize> {
        let mut holdings = Holdings::new(permits, max_share);
        let counts = (0..).map(|tenant: usize| take_all(&mut holdings, &tenant.to_string()));
        counts.take_while(|count| *count > 0).collect()
    }

    #[test]
    fn tenant_alone_gets_three_quarters_and_leaves_the_rest() {
        for (permits, counts) in [
            (256, vec![192, 32, 16, 8, 4, 2, 1, 1]),
            (64, vec![48, 8, 4, 2, 1, 1]),
            (16, vec![12, 2, 1, 1]),
            (8, vec![6, 1, 1]),
            (4, vec![3, 1]),
            (2, vec![1, 1]),
            (1, vec![1]),
        ] {
            assert_eq!(take_in_turn(permits, MaxShare::ThreeQuarters), counts, "{permits}");
        }
        assert_eq!(take_in_turn(64, MaxShare::All), [64]);
    }

    #[test]
    fn large_request_exceeds_share_only_for_idle_tenant() {
        let mut holdings = Holdings::new(128, MaxShare::ThreeQuarters);
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        assert!(holdings.allows(&a, 128) && !holdings.allows(&a, 129));
        holdings.add(&a, 16);
        assert!(!holdings.allows(&a, 81) && holdings.allows(&a, 80), "a quarter stays free");
        holdings.add(&a, 80);
        assert!(!holdings.allows(&a, 1) && holdings.allows(&b, 32));
    }

    #[test]
    fn tenant_without_a_name_has_no_bound() {
        let mut holdings = Holdings::new(8, MaxShare::ThreeQuarters);
        assert_eq!((take_all(&mut holdings, ""), holdings.rank("")), (8, 0));
    }

    #[test]
    fn throttled_tenant_holds_a_quarter_and_others_are_unaffected() {
        let mut holdings = Holdings::new(16, MaxShare::ThreeQuarters);
        let slow: Arc<str> = "slow".into();
        holdings.throttle(&slow);
        holdings.throttle(&slow);
        assert_eq!((take_all(&mut holdings, "slow"), take_all(&mut holdings, "quick")), (4, 8));
        holdings.unthrottle(&slow);
        assert!(holdings.is_throttled(&slow, 1), "one call is slow still");
        holdings.unthrottle(&slow);
        assert!(!holdings.is_throttled(&slow, 1));
    }

    proptest! {
        /// No more permits are held than exist, a tenant that holds nothing gets what is free, a tenant that may hold some may
        /// hold fewer, and no two tenants hold all of five permits or more that are taken one by one.
        #[test]
        fn rule_holds_whatever_tenants_take(
            permits in 1..80_usize,
            max_share in proptest::sample::select(vec![MaxShare::ThreeQuarters, MaxShare::All]),
            weights in prop_oneof![Just(1..2_usize), Just(1..12_usize)],
            changes in proptest::collection::vec((0..5_usize, any::<usize>(), any::<bool>()), 0..100),
        ) {
            let mut holdings = Holdings::new(permits, max_share);
            let tenants: Vec<Arc<str>> = (0..5).map(|tenant| tenant.to_string().into()).collect();
            for (tenant, weight, returns) in changes {
                let (tenant, weight) = (&tenants[tenant], weights.start + weight % weights.len());
                let held = holdings.held_by(tenant);
                if returns {
                    holdings.remove(tenant, weight.min(held));
                } else if holdings.allows(tenant, weight) {
                    prop_assert!(weight == 1 || holdings.allows(tenant, weight - 1));
                    holdings.add(tenant, weight);
                } else {
                    prop_assert!(held > 0 || weight > holdings.available());
                }
                let mut counts: Vec<usize> = tenants.iter().map(|tenant| holdings.held_by(tenant)).collect();
                prop_assert_eq!(counts.iter().sum::<usize>() + holdings.available(), permits);
                counts.sort_unstable();
                let is_shared = max_share == MaxShare::ThreeQuarters && permits > 4 && weights.len() == 1;
                prop_assert!(!is_shared || counts[3] + counts[4] < permits);
            }
            for tenant in &tenants {
                holdings.remove(tenant, holdings.held_by(tenant));
            }
            prop_assert!(holdings.is_empty());
        }
    }
}
