-- Requests for more than a sandbox's network policy allows, with their answers, as a list in JSON.

ALTER TABLE sandboxes ADD COLUMN network_requests TEXT;
