"""DescribeConfigs: the configuration of topics and brokers."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int8, Int16, Int32, String


@struct
class DescribeConfigsResource:
    """The query for one resource. `configuration_keys` None requests all entries.

    `resource_type`: 2 topic, 4 broker, 8 a broker's loggers, 16 client metrics, 32 group.
    """

    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None = field(nullable="0+", default=None)


@request(api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request):
    """Requests the configuration, optionally with the synonyms and documentation of its entries."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = field(versions="3+", default=False)


@struct
class DescribeConfigsSynonym:
    """A possible source of the value. The effective one is listed first."""

    name: String
    value: String | None = field(nullable="0+")
    source: Int8


@struct
class DescribeConfigsResourceResult:
    """An entry. The value of a sensitive one is None.

    `config_source`: 1 topic, 2 broker, 3 default of all brokers, 4 the broker's file, 5 built-in default, 6 loggers,
    7 client metrics, 8 group. `config_type`: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class,
    9 password.
    """

    name: String
    value: String | None = field(nullable="0+")
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = field(versions="3+", ignorable=True, default=0)
    documentation: String | None = field(versions="3+", nullable="0+", ignorable=True, default=None)


@struct
class DescribeConfigsResult:
    """The entries of one resource, or the error."""

    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


@response(of=DescribeConfigsRequest, client_throttles="2+")
class DescribeConfigsResponse(Response):
    """The configuration of each resource."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]
