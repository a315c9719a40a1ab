//! Writes of one object. Everything that a server puts off until it has answered counts as its cost.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::client::{Call, Client};
use crate::gets::somewhere;
use crate::load::{self, Done, Load};
use crate::measure::{Experiment, MeasuredCollection, Turn, Window};
use crate::scene::{self, Scene, TURN};

/// Clients that create objects, beside all those that are there.
#[derive(Debug)]
pub(crate) struct Creates<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) clients: usize,
    /// By all of them together.
    pub(crate) writes: usize,
}

impl Creates<'_> {
    fn turn(&self, target: &MeasuredCollection, round: usize) -> String {
        format!("{:?}-{}-{round}", target.side, self.clients).to_lowercase()
    }
}

impl Experiment for Creates<'_> {
    const WINDOW: Window = Window::Quiet;
    type Ready = Vec<Client>;
    type Output = Vec<Done>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Vec<Client>> {
        target.clients(self.clients).await
    }

    async fn work(&self, target: &MeasuredCollection, round: usize, clients: Vec<Client>) -> Result<Turn<Vec<Done>>> {
        let turn = self.turn(target, round);
        let calls: Vec<Call> = (0..self.writes)
            .map(|number| Call::post(target.collection.clone(), &self.scene.object(target, number, &turn)))
            .collect();
        let (calls, stride) = (Arc::new(calls), self.clients);
        load::run(target, clients, Load::ALL, move |client, count| calls.get(client + count * stride).cloned()).await
    }

    async fn check(&self, target: &MeasuredCollection, round: usize, output: Vec<Done>) -> Result<usize> {
        let turn = self.turn(target, round);
        let list = target.ask(&Call::get(format!("{}?labelSelector={TURN}%3D{turn}", target.collection))).await?;
        let there = list["items"].as_array().map_or(0, Vec::len);
        ensure!(there == self.writes && output.len() == self.writes, "{there} of {} are there", self.writes);
        Ok(output.first().map_or(0, |done| done.answer.wire_bytes()))
    }
}

/// How a field is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By a JSON merge patch with the field alone.
    MergePatch,
    /// By a server-side apply of all that the object was created with.
    Apply,
}

/// Clients that change a field of objects.
#[derive(Debug)]
pub(crate) struct Patches<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) how: How,
    pub(crate) clients: usize,
    /// By all of them together.
    pub(crate) writes: usize,
    pub(crate) objects: usize,
}

impl Patches<'_> {
    fn description(&self, target: &MeasuredCollection, round: usize, client: usize, count: usize) -> String {
        let (how, side, clients) = (self.how, target.side, self.clients);
        format!("{how:?} by {side:?}: {clients} clients, turn {round}, client {client}, patch {count}")
    }
}

impl Experiment for Patches<'_> {
    const WINDOW: Window = Window::Quiet;
    type Ready = Vec<Client>;
    type Output = Vec<Done>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Vec<Client>> {
        target.clients(self.clients).await
    }

    async fn work(&self, target: &MeasuredCollection, round: usize, clients: Vec<Client>) -> Result<Turn<Vec<Done>>> {
        let each = self.writes.div_ceil(self.clients);
        let calls: Vec<Vec<Call>> = (0..self.clients)
            .map(|client| {
                let patch = |count| {
                    let description = self.description(target, round, client, count);
                    let spec = scene::describe(target, &description);
                    let number = somewhere(client, count, self.objects);
                    let path = target.object(&scene::name(number));
                    match self.how {
                        How::MergePatch => Call::merge(path, &json!({"spec": spec})),
                        How::Apply => {
                            let mut object = self.scene.object(target, number, "");
                            merge(&mut object["spec"], spec);
                            Call::apply(path, &object)
                        }
                    }
                };
                (0..each).map(patch).collect()
            })
            .collect();
        let calls = Arc::new(calls);
        load::run(target, clients, Load::ALL, move |client, count| calls[client].get(count).cloned()).await
    }

    async fn check(&self, target: &MeasuredCollection, round: usize, output: Vec<Done>) -> Result<usize> {
        let bytes = output.first().map_or(0, |done| done.answer.wire_bytes());
        let mut last = None;
        for done in output {
            let expected = self.description(target, round, done.client, done.number);
            let object = done.answer.json()?;
            ensure!(*scene::description(&object) == expected, "patched to {expected:?}, got {object}");
            let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?;
            last = last.max(Some((version, expected, object["metadata"]["name"].as_str().map(str::to_owned))));
        }
        // No patch came after the last one, so that it is what everybody reads now.
        let (_, expected, name) = last.context("nothing was patched")?;
        let object = target.ask(&Call::get(target.object(&name.unwrap_or_default()))).await?;
        ensure!(*scene::description(&object) == expected, "patched to {expected:?}, and then read {object}");
        Ok(bytes)
    }
}

/// Puts the members of one object into another.
fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
