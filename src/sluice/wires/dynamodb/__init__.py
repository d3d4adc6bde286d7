"""What both DynamoDB wires share: everything about a call but sending its bytes.

options    what a URL says
account    who we are and where the table is, as botocore resolves it
signing    a call in, headers that the engine believes out
replies    a status, headers and a body in, one certainty out
skew       this host's clock, corrected by the dates on the replies
letters    one call on its way: sealed before it is sent, read when it comes back
"""
