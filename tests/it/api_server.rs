//! API server in the test process on a free port, and helpers that send requests to it.

use std::net::SocketAddr;
use std::sync::Once;
use std::time::Duration;

use clap::Parser;
use domain::crypto::run_token::TokenAudience;
use domain::ids::{JobId, Repo};
use domain::issue::{IssueRef, System};
use domain::job::{Job, JobKind, JobState, RunnerKind};
use domain::time::Timestamp;
use engine::app::{App, AppOptions, Timings};
use engine::clock::Clock;
use engine::config::{Config, Options};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use store::{Store, jobs};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::openapi::conformance::CheckedRequest;

/// Access code of the admin API.
pub const ACCESS_CODE: &str = "open sesame, please";
/// Secret that signs run tokens.
pub const TOKEN_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Initial time of the manual clock: 2027-01-15T08:00:00Z.
pub const CLOCK_START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

/// Builds a configuration from flags.
pub fn config(flags: &[&str]) -> Config {
    let arguments = std::iter::once("test").chain(flags.iter().copied());
    Config::from_options(CommandLine::parse_from(arguments).options, None).unwrap()
}

/// Flags that enable the admin API and the callbacks of runs.
pub const ALL_FEATURES: &[&str] = &[
    "--admin-access-code",
    ACCESS_CODE,
    "--runner-token-secret",
    TOKEN_SECRET,
    "--runner-callback-base-url",
    "http://127.0.0.1:1",
];

/// Running API server with a manual clock and without the engine.
pub struct ApiServer {
    /// State of the service.
    pub app: App,
    /// Store of the service, to set up and inspect what no route shows.
    pub store: Store,
    /// Manual clock of the service.
    pub clock: Clock,
    /// Address of the server.
    pub address: SocketAddr,
    /// HTTP client with a timeout of 20 seconds.
    pub client: reqwest::Client,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

/// Response to a request, with its body read as JSON.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: u16,
    pub headers: HeaderMap,
    /// Body, if it is JSON.
    pub body: Value,
    pub text: String,
}

impl ApiResponse {
    /// Returns status and error text.
    pub fn error(&self) -> (u16, &str) {
        (self.status, self.body["error"].as_str().unwrap_or_default())
    }

    /// Returns the value of a header, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

impl ApiServer {
    /// Starts a server with [`ALL_FEATURES`] and a store in memory.
    pub async fn start() -> Self {
        Self::start_with(ALL_FEATURES, Store::in_memory().unwrap()).await
    }

    /// Starts a server with these flags and this store.
    pub async fn start_with(flags: &[&str], store: Store) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let clock = Clock::manual(CLOCK_START);
        let timings = Timings {
            stream_heartbeat_interval: Duration::from_millis(100),
            ..Timings::default()
        };
        let options = AppOptions {
            clock: clock.clone(),
            timings,
            ..AppOptions::default()
        };
        let app = App::new(config(flags), store.clone(), options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server::serve(app.clone(), listener, async {
            let _ = stopped.await;
        }));
        Self {
            app,
            store,
            clock,
            address,
            client: reqwest::Client::builder()
                .timeout(Duration::from_secs(20))
                .build()
                .unwrap(),
            stop,
            served,
        }
    }

    /// Stops the server and waits for its end.
    pub async fn stop(self) -> std::io::Result<()> {
        let _ = self.stop.send(());
        self.served.await.unwrap()
    }

    /// Returns a request to the server that can be extended before it is sent.
    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client
            .request(method, format!("http://{}{path}", self.address))
    }

    /// Sends a request with a bearer token (absent if empty) and an optional body.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: impl Into<Option<String>>,
    ) -> ApiResponse {
        let mut request = self.request(method, path);
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body.into() {
            request = request.body(body);
        }
        send_checked(request).await
    }

    /// Signs in and returns a token of the admin API.
    pub async fn sign_in(&self) -> String {
        let body = json!({"code": ACCESS_CODE}).to_string();
        let response = self.send("POST", "/api/auth", "", body).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.body["token"].as_str().unwrap().to_owned()
    }

    /// Stores a job.
    pub async fn put_job(&self, job: &Job) {
        let job = job.clone();
        let stored = self.store.write(move |tx| jobs::put(tx, &job));
        stored.await.unwrap();
    }

    /// Reads a job from the store.
    pub fn job(&self, id: &str) -> Job {
        let id = JobId::from(id);
        let found = self.store.read(|tx| jobs::get(tx, &id)).unwrap();
        found.unwrap()
    }

    /// Issues a run token for a job, valid for an hour.
    pub fn run_token(&self, job: &Job, audience: TokenAudience) -> String {
        self.run_token_with_ttl(job, audience, Duration::from_secs(3600))
    }

    /// Issues a run token for a job with this time to live.
    pub fn run_token_with_ttl(&self, job: &Job, audience: TokenAudience, ttl: Duration) -> String {
        let tokens = &self.app.secrets.run_tokens;
        let now = self.app.core.now();
        let token = tokens.issue(&job.id, audience, job.kind.run_phase(), now, now + ttl);
        token.expose().to_owned()
    }
}

/// Sends a request and checks request and response against the OpenAPI document.
pub async fn send_checked(request: reqwest::RequestBuilder) -> ApiResponse {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let checked = CheckedRequest::new(request.method().as_str(), request.url());
    let response = client.execute(request).await.unwrap();
    let (status, headers, text) = checked.check_response(response).await;
    ApiResponse {
        status,
        headers,
        body: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
    }
}

/// Returns a job that was dispatched to CI.
pub fn dispatched_job(id: &str, kind: JobKind) -> Job {
    Job {
        id: JobId::from(id),
        group: JobId::from(id),
        kind,
        issue: IssueRef {
            system: System::Linear,
            id: "issue-1".into(),
            key: "ENG-1".into(),
            title: "Make it work".into(),
            url: "https://tickets.test/ENG-1".into(),
            marker_field: None,
        },
        team: "ENG".into(),
        repo: Repo::new("acme", "shop"),
        runner: RunnerKind::Ci,
        shadow: false,
        session_image: None,
        dispatch_number: 1,
        attempt: Some(1),
        branch: "agent-implement/eng-1".into(),
        has_callbacks: true,
        timeout_minutes: 90,
        state: JobState::Dispatched,
        run: None,
        pull: None,
        conclusion: None,
        cancellation: None,
        start_refusal_status: None,
        reserved_at: CLOCK_START,
        dispatched_at: Some(CLOCK_START),
        started_at: None,
        run_ended_at: None,
        finished_at: None,
        usage: None,
        agent: None,
        model: None,
        labels: Vec::new(),
        triggered_at: None,
        nonce_hash: None,
        failure_reported: false,
        machine_destroyed_at: None,
        trigger_stage: None,
        agents: Default::default(),
        resumes_at: None,
        merge: None,
        result_accepted: false,
        unconfirmed_result: None,
        refused_hosts: Vec::new(),
    }
}

/// Sends raw bytes and reads until the server closes the connection.
pub async fn send_raw(address: SocketAddr, bytes: &[u8]) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}
