"""The process of servers and jobs: logs, metrics, threads, and a bounded shutdown."""
