//! What an Import is to record, and that no other deployment has it on record.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_engine::{
    Action, Plan, ResourceId, ResourceType,
    import::{Selected, Selection},
};
use stoa_kinds::text;
use stoa_machinery::registry::ListOptions;
use stoa_types::{Resource, Stack, delivery::Import, reason};

use super::plan;
use crate::{StepError, execution::Execution, kusion, state::State, target::Target, terraform_state};

/// So many resources are named in a message.
const NAMED: usize = 5;

/// What is to be imported, as the function-runner takes it. What Kusion has on record is read anew for every plan.
///
/// # Errors
///
/// Failed when a release of Kusion cannot be taken over, and Refused when the Preview is gone whose plan is to be carried out.
pub(super) async fn selection(execution: &mut Execution, target: &Target) -> Result<Bytes, StepError> {
    let Import { resources, kusion, terraform } = wanted(execution, target).await?;
    let selection = match (kusion, terraform) {
        (None, Some(state)) => {
            let found = terraform_state::read(&*target.documents, &state).await?;
            execution.journal.note("Planning", found.summary());
            Selection { records: found.records, only_wanted: true, ..Selection::default() }
        }
        (Some(release), _) => {
            let ours = [target.project.name_any(), target.workspace.name_any()];
            let found = kusion::read(&*target.documents, ours, &release).await?;
            execution.journal.note("Planning", found.told());
            Selection { records: found.records, ..Selection::default() }
        }
        (None, None) => Selection {
            all: resources.is_empty(),
            resources: resources
                .into_iter()
                .map(|of| Selected { id: ResourceId(of.id), infrastructure_id: of.infrastructure_id })
                .collect(),
            ..Selection::default()
        },
    };
    Ok(serde_json::to_vec(&selection).expect("a selection serializes").into())
}

/// What the run is told to import, or else the Preview whose plan it carries out.
async fn wanted(execution: &Execution, target: &Target) -> Result<Import, StepError> {
    let own = execution.run.spec.import.clone();
    let wanted = match (own, &execution.run.spec.plan) {
        (None, Some(name)) => plan::previewed(execution, target, name).await?.plan.import,
        (own, _) => own,
    };
    Ok(wanted.unwrap_or_default())
}

/// Refuses a plan that would do more than record, and one that would record what another deployment has on record: an
/// object that was imported there bears no mark yet. An object in a cluster has a uid, and one in a file has an id of its
/// own in the folder of the Workspace.
///
/// # Errors
///
/// Failed with the resources and whose they are.
pub(super) async fn check(execution: &Execution, target: &Target, plan: &Plan) -> Result<(), StepError> {
    if let Some(other) = plan.actions.iter().find(|planned| planned.action != Action::Import) {
        let message = format!(
            "the function-runner planned to {} {}, which is not an import; upgrade it to the version of the API server",
            other.action.to_string().to_lowercase(),
            other.id
        );
        return Err(StepError::failed(reason::PLAN_FAILED, message));
    }
    let (mut uids, mut in_files) = (BTreeMap::new(), BTreeSet::new());
    for planned in plan.actions.iter().filter(|planned| planned.kind == ResourceType::Kubernetes) {
        match planned.found.as_ref().and_then(|found| found.uid.as_deref()) {
            Some(uid) => drop(uids.insert(uid, &planned.id)),
            None => drop(in_files.insert(&planned.id)),
        }
    }
    if uids.is_empty() && in_files.is_empty() {
        return Ok(());
    }
    let own = (target.namespace(), target.stack.name_any(), target.workspace.name_any());
    // By deployment, since its state is read for all of them at once.
    let mut others: BTreeMap<Deployment, Vec<&ResourceId>> = BTreeMap::new();
    let of_others = |resource: Resource| {
        let spec = &resource.spec;
        let of = (resource.namespace().unwrap_or_default(), spec.stack.clone(), spec.workspace.clone());
        let same_id = || in_files.get(&ResourceId(spec.id.clone())).filter(|_| of.2 == own.2);
        let id: &ResourceId = *uids.get(spec.kubernetes.as_ref()?.uid.as_str()).or_else(same_id)?;
        let is_gone = resource.status.as_ref().is_some_and(|status| status.phase.is_gone());
        (of != own && !is_gone).then_some((of, id))
    };
    let resources = execution.services.lookup.api::<Resource>()?;
    for (of, id) in resources.list_of(None, &ListOptions::default(), of_others).await? {
        others.entry(of).or_default().push(id);
    }
    let uid_of: BTreeMap<&ResourceId, &str> = uids.iter().map(|(uid, id)| (*id, *uid)).collect();
    let mut taken = Vec::new();
    for (of, objects) in others {
        let Some(recorded) = recorded(execution, &of).await? else { continue };
        let (organization, stack, workspace) = of;
        let had = objects.into_iter().filter(|id| recorded.may_have(id, uid_of.get(*id).copied()));
        taken.extend(had.map(|id| format!("{id} is on record for {organization}/{stack}/{workspace}")));
    }
    if taken.is_empty() {
        return Ok(());
    }
    taken.sort();
    let taken = text::first(&taken, NAMED, "; ");
    Err(StepError::failed(reason::IMPORT_FAILED, format!("{taken}. Nothing was recorded")))
}

type Deployment = (String, String, String);

/// The objects that the state of a deployment has.
struct Recorded {
    uids: BTreeSet<String>,
    /// The ids of the objects without a uid.
    in_files: BTreeSet<ResourceId>,
    /// Whether there are some that are too large for a record, and kept in documents.
    has_large: bool,
}

impl Recorded {
    /// Whether an object may be among them; an object in a document may be any.
    fn may_have(&self, id: &ResourceId, uid: Option<&str>) -> bool {
        self.has_large || uid.map_or_else(|| self.in_files.contains(id), |uid| self.uids.contains(uid))
    }
}

/// What the state of a deployment has, if its stack is there: what its Resources say outlives that.
async fn recorded(
    execution: &Execution,
    (namespace, stack, workspace): &Deployment,
) -> Result<Option<Recorded>, StepError> {
    let Some(stack) = execution.services.lookup.api::<Stack>()?.get_opt(namespace, stack).await? else {
        return Ok(None);
    };
    let state = State::load(&*execution.services.log, &stack.uid().unwrap_or_default(), workspace, None).await?;
    let mut recorded = Recorded { uids: BTreeSet::new(), in_files: BTreeSet::new(), has_large: false };
    for record in state.entries() {
        match &record.resource {
            Some(resource) => match resource.uid() {
                Some(uid) => drop(recorded.uids.insert(uid.to_owned())),
                None => drop(recorded.in_files.insert(resource.id.clone())),
            },
            None => recorded.has_large |= record.document.is_some(),
        }
    }
    Ok(Some(recorded))
}
