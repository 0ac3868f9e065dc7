//! What people do: file tickets, push, review, converse, merge, take over.

use domain::audit::Actor;
use domain::ids::IssueId;
use engine::take_over::{self, Named};
use store::changed_files;

use super::event::LandingEvent;
use super::projects::{FILES, file_name, project_of_slot, team};
use super::world::{ModelTicket, World};

impl World {
    pub fn issue_id(&self, ticket: usize) -> IssueId {
        let ticket = self.env().vendors.linear().issue(&self.tickets[ticket].key);
        ticket.snapshot().unwrap().id.as_str().into()
    }

    /// Whether nothing is to be expected of the ticket any more.
    fn is_done(&self, ticket: usize) -> bool {
        let jobs = self.env().jobs(&self.tickets[ticket].key);
        let is_active = jobs.iter().any(|job| job.is_active());
        let open = self.pulls_where(|pull| pull.open);
        let is_open = open.iter().any(|at| self.pulls[*at].ticket == ticket);
        !jobs.is_empty() && !is_active && !is_open
    }

    /// Files the next ticket of a place, with a plan that declares a file.
    pub async fn file(&mut self, slot: usize) -> bool {
        if self.slots[slot].is_some_and(|ticket| !self.is_done(ticket)) {
            return false;
        }
        let (project, at) = (project_of_slot(slot), self.tickets.len());
        let key = format!("{}-{}", team(project), at + 1);
        let files = vec![file_name(at % FILES)];
        self.env().create_labelled_issue(&key, "Do it");
        self.tickets.push(ModelTicket {
            key,
            project,
            files: files.clone(),
            is_taken: false,
        });
        self.slots[slot] = Some(at);
        let issue = self.issue_id(at);
        let store = &self.env().store;
        let write = store.write(move |tx| changed_files::put_declared(tx, &issue, &files));
        write.await.unwrap();
        true
    }

    pub async fn take(&mut self, slot: usize) -> bool {
        let Some(ticket) = self.slots[slot] else {
            return false;
        };
        let named = Named::Issue(self.tickets[ticket].key.clone());
        let taken = take_over::take(&self.env().app, Actor::owner(), named, Some("Kim")).await;
        self.tickets[ticket].is_taken |= taken.is_ok();
        taken.is_ok()
    }

    pub async fn give_back(&mut self, slot: usize) -> bool {
        let Some(ticket) = self.slots[slot].filter(|ticket| self.tickets[*ticket].is_taken) else {
            return false;
        };
        let named = Named::Issue(self.tickets[ticket].key.clone());
        let given = take_over::give_back(&self.env().app, Actor::owner(), named, None).await;
        given.unwrap();
        self.tickets[ticket].is_taken = false;
        true
    }

    /// What people and other programs do at the host. Returns whether it applied.
    pub fn act(&mut self, event: &LandingEvent) -> bool {
        match event {
            LandingEvent::BaseCheck(project, end) => {
                let base = self.repo(*project).branch_head("main").unwrap();
                self.end_check(*project, &base, *end)
            }
            LandingEvent::MoveBase(project, file) => {
                let text = format!("base {}\n", self.change());
                let repo = self.repo(*project);
                let files = [(file_name(*file), text)];
                let files = files
                    .each_ref()
                    .map(|(name, text)| (name.as_str(), text.as_str()));
                repo.commit("main", &files, "Change the base").unwrap();
                true
            }
            LandingEvent::Uncomputed(project, is_unknown) => {
                let reads = if *is_unknown { 2 } else { 0 };
                self.repo(*project).set_unknown_reads(reads);
                true
            }
            LandingEvent::RunQueue(project) => {
                let merged = self.repo(*project).run_merge_queue();
                merged.is_ok_and(|count| count > 0)
            }
            LandingEvent::Reopen(at) => {
                let closed = self.pulls_where(|pull| !pull.open && !pull.merged);
                let Some(at) = closed.get(at % closed.len().max(1)) else {
                    return false;
                };
                let pull = &self.pulls[*at];
                let repo = self.repo(pull.project);
                let mut open = repo.pulls().into_iter().filter(|other| other.open);
                // GitHub allows one open pull request per branch.
                let is_taken = open.any(|other| other.head == pull.branch);
                if !is_taken {
                    repo.reopen_pull(pull.number);
                }
                !is_taken
            }
            on_pull => self.act_on_pull(on_pull),
        }
    }

    fn act_on_pull(&mut self, event: &LandingEvent) -> bool {
        let (LandingEvent::Check(which, _)
        | LandingEvent::AppCheck(which, _)
        | LandingEvent::OldCheck(which)
        | LandingEvent::Push(which)
        | LandingEvent::Review(which, ..)
        | LandingEvent::Dismiss(which)
        | LandingEvent::Discuss(which)
        | LandingEvent::Resolve(which)
        | LandingEvent::Close(which)
        | LandingEvent::MergeByHand(which)
        | LandingEvent::StopMerge(which)) = event
        else {
            unreachable!("{event:?}")
        };
        let open = self.pulls_where(|pull| pull.open);
        let Some(at) = open.get(which % open.len().max(1)).copied() else {
            return false;
        };
        let (now, change) = (self.now(), self.change());
        let (project, number) = (self.pulls[at].project, self.pulls[at].number);
        let repo = self.repo(project);
        let head = repo.branch_head(&self.pulls[at].branch).unwrap();
        match event {
            LandingEvent::Check(_, end) => return self.end_check(project, &head, *end),
            LandingEvent::AppCheck(_, end) => return self.report_check(project, &head, *end),
            LandingEvent::OldCheck(_) => {
                let mut older = self.pulls[at].heads.iter().filter(|old| **old != head);
                let red = super::event::CheckEnd::Red(0);
                return older
                    .next_back()
                    .is_some_and(|old| self.report_check(project, old, red));
            }
            LandingEvent::Push(_) => {
                let (name, branch) = (format!("person-{change}.txt"), &self.pulls[at].branch);
                let pushed = repo.commit(branch, &[(&name, "by hand\n")], "By hand");
                self.pulls[at].pushed_by_person = Some((pushed.unwrap(), now));
                self.pulls[at].repairs = 0;
            }
            LandingEvent::Review(_, login, opinion) => {
                let body = match *opinion {
                    "CHANGES_REQUESTED" => format!("Change part {change}."),
                    _ => String::new(),
                };
                let id = repo.add_review(number, login, opinion, &body);
                self.pulls[at].reviews.push((id, login, opinion, head));
            }
            LandingEvent::Dismiss(_) => {
                let mut reviews = self.pulls[at].reviews.iter_mut().rev();
                let Some(review) = reviews.find(|review| review.2 == "APPROVED") else {
                    return false;
                };
                review.2 = "DISMISSED";
                repo.dismiss_review(review.0);
            }
            LandingEvent::Discuss(_) => {
                let file = self.tickets[self.pulls[at].ticket].files[0].clone();
                let body = format!("LGTM {change}");
                let thread = repo.add_review_comment(number, "kim", &file, 1, &body);
                self.pulls[at].threads.push(thread);
            }
            LandingEvent::Resolve(_) => {
                if self.pulls[at].threads.is_empty() {
                    return false;
                }
                repo.resolve_thread(self.pulls[at].threads.remove(0));
            }
            LandingEvent::Close(_) => repo.close_pull(number),
            LandingEvent::MergeByHand(_) => {
                let base = repo.branch_head("main").unwrap();
                if repo.are_in_conflict(&base, &head) {
                    return false;
                }
                repo.merge_pull(number).unwrap();
            }
            _ => repo.stop_merge(number),
        }
        true
    }
}
