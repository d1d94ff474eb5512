"""Clients' settings: logins, certificates, references to secrets, and what a refusal means."""
