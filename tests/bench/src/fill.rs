//! Makes the objects that everything else reads.

use std::sync::Arc;

use anyhow::Result;

use crate::client::{Call, Client};
use crate::lists::{self, Form};
use crate::load::{self, Done, Load};
use crate::measure::{Experiment, MeasuredCollection, Turn, Window};
use crate::scene::Scene;
use crate::size::{MANY_CLIENTS, Size};

/// Many clients create the objects that are not there yet, once.
#[derive(Debug)]
pub(crate) struct Fill<'a> {
    pub(crate) scene: &'a Scene,
    /// How many there are.
    pub(crate) from: usize,
    /// How many there will be.
    pub(crate) objects: usize,
}

impl Experiment for Fill<'_> {
    const WINDOW: Window = Window::Quiet;
    type Ready = Vec<Client>;
    type Output = Vec<Done>;

    fn rounds(&self, _: &Size) -> usize {
        1
    }

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Vec<Client>> {
        target.clients(MANY_CLIENTS).await
    }

    async fn work(&self, target: &MeasuredCollection, _: usize, clients: Vec<Client>) -> Result<Turn<Vec<Done>>> {
        let bodies: Vec<Call> = (self.from..self.objects)
            .map(|number| Call::post(target.collection.clone(), &self.scene.object(target, number, "")))
            .collect();
        let calls = Arc::new(bodies);
        load::run(target, clients, Load::ALL, move |client, count| calls.get(client + count * MANY_CLIENTS).cloned())
            .await
    }

    async fn check(&self, target: &MeasuredCollection, _: usize, output: Vec<Done>) -> Result<usize> {
        let mut clients = target.clients(1).await?;
        let answer = clients[0].succeed(&Form::JSON.call(&target.collection)).await?;
        target.put_back(clients);
        lists::check(Form::JSON, &answer.text()?, self.objects)?;
        Ok(output.first().map_or(0, |done| done.answer.wire_bytes()))
    }
}
