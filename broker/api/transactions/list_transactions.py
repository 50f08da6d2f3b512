"""ListTransactions: the transactional ids that this broker coordinates."""

from __future__ import annotations

import re

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.transactions.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ....network.protocol.other_errors import InvalidRegularExpressionError
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ...transaction.states import TransactionState
from ..registry import serves

_LABELS = frozenset(state.label for state in TransactionState)


# On the request thread: the response grows with the number of ids.
@serves(ListTransactionsRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Lists the ids that match all filters. The pattern is one of Python's, which covers what RE2 and it share."""
    unknown = [each for each in request.state_filters if each not in _LABELS]
    try:
        error = context.injected_error("")
        if error is not None:
            raise error
        pattern = None
        if request.transactional_id_pattern:
            try:
                pattern = re.compile(request.transactional_id_pattern)
            except re.error as wrong:
                raise InvalidRegularExpressionError(f"the pattern can't be compiled: {wrong}") from wrong
        descriptions = broker.transactions.descriptions()
    except BrokerResponseError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=[], transaction_states=[])
    now_ms = broker.clock.wall_ms()
    listed = []
    for transactional_id, values in descriptions.items():
        if request.state_filters and values.state.label not in request.state_filters:
            continue
        if request.producer_id_filters and values.producer_id not in request.producer_id_filters:
            continue
        if request.duration_filter >= 0 and now_ms - values.start_ms <= request.duration_filter:
            continue
        if pattern is not None and not pattern.fullmatch(transactional_id):
            continue
        if not context.is_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            continue
        listed.append(
            ListedTransaction(
                transactional_id=transactional_id,
                producer_id=values.producer_id,
                transaction_state=values.state.label,
            )
        )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)
