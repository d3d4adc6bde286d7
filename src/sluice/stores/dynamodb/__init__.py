"""The DynamoDB store: many processes on many hosts, one table, one write a take."""
