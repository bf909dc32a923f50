"""The registry's port: manifests, blobs, tags and referrers (OCI distribution 1.1, and what came before it)."""
